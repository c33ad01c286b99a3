"""How long a step takes with FSDP2 of PyTorch on CPUs, over Gloo and over our backend.

FSDP2 keeps a shard of each layer on each worker. It gathers the weights of a layer before its
forward, and scatters the sums of its gradients behind its backward. Weights that are resharded
after forward are gathered again before backward. On CPUs PyTorch waits for each of these calls, so
no call overlaps with compute.
"""

import math
from typing import NamedTuple, Sequence

from bytescheduler._advise.ddp import Ring
from bytescheduler._advise.models import Step

__all__ = ["Calls", "over_gloo", "over_ours", "step_s"]


class Calls(NamedTuple):
    """The two collectives of a layer, on the busiest link."""

    gathered: float  # layers that the link carries each way in a gather
    scattered: float  # the same in a scatter
    gather_latency_s: float
    scatter_latency_s: float
    bytes_per_s: float  # on the link, each way

    def gather_s(self, size_bytes: int) -> float:
        """Return how long all workers take to get the weights of a layer."""
        return self.gathered * size_bytes / self.bytes_per_s + self.gather_latency_s

    def scatter_s(self, size_bytes: int) -> float:
        """Return how long each worker takes to get its shard of the sum."""
        return self.scattered * size_bytes / self.bytes_per_s + self.scatter_latency_s


def over_gloo(ring: Ring) -> Calls:
    """Return the collectives of Gloo, which sums whole layers and cuts the shards out of them."""
    messages = ring.workers - 1
    gathered = messages / ring.workers
    latency_s = messages * ring.latency_s
    return Calls(gathered, 2 * gathered, latency_s, 2 * latency_s, ring.bytes_per_s)


def over_ours(ring: Ring, per_host: int = 1) -> Calls:
    """Return the collectives of our backend in a direct job; each takes a round trip.

    A worker sends a shard to each other worker, so those of a host share its link.
    """
    beside = min(per_host, ring.workers)
    carried = beside * (ring.workers - beside) / ring.workers
    latency_s = 2 * ring.latency_s if ring.workers > 1 else 0.0
    return Calls(carried, carried, latency_s, latency_s, ring.bytes_per_s)


def step_s(layers: Sequence[Step], calls: Calls, *, reshards: bool) -> float:
    """Return the seconds of a step whose weights are kept after forward, or resharded."""
    gathers = 2 if reshards else 1
    waited = (
        gathers * calls.gather_s(layer.size_bytes) + calls.scatter_s(layer.size_bytes)
        for layer in layers
        if layer.size_bytes
    )
    return math.fsum(layer.forward_s + layer.backward_s for layer in layers) + math.fsum(waited)

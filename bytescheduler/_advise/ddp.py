"""How long a step takes with a framework's own sums in a ring of the workers.

DistributedDataParallel (DDP) of PyTorch joins gradients in buckets, in the order of backward.
Gloo sums a bucket once its last gradient is ready and the bucket before it is summed.  The sum goes
round a ring of the workers: each link carries 2 (W - 1) / W of the bucket's bytes each way, in
2 (W - 1) messages one after another.  Backward goes on meanwhile.  The next forward begins when all
buckets are summed.
"""

import math
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from bytescheduler._advise.models import Step

__all__ = ["BUCKETS_MB", "DEFAULT_MB", "Ring", "best_bucket", "buckets", "step_s", "whole_s"]

_MB = 1 << 20  # the unit of `bucket_cap_mb`
DEFAULT_MB = 25  # DDP's own `bucket_cap_mb`
_FIRST_BYTES = 1 << 20  # the limit of the first bucket, unless a script gives `bucket_cap_mb`
BUCKETS_MB = (1, 2, 4, 6, 12, DEFAULT_MB, 50, 100)  # that are tried


class Ring(NamedTuple):
    """The workers of an all-reduce, and the slowest of their links."""

    workers: int
    bytes_per_s: float  # each way
    latency_s: float  # one way

    def sum_s(self, size_bytes: int) -> float:
        """Return how long the sum of a bucket takes."""
        messages = 2 * (self.workers - 1)
        return messages * (size_bytes / self.workers / self.bytes_per_s + self.latency_s)


def buckets(sizes: Iterable[int], limit_bytes: int, first_bytes: int) -> List[int]:
    """Return how many gradients are in each bucket; `sizes` are in the order of backward.

    A bucket is full once it has as many bytes as its limit, so it may have more.
    """
    counts: List[int] = []
    count = size = 0
    for gradient_bytes in sizes:
        count += 1
        size += gradient_bytes
        if size >= (limit_bytes if counts else first_bytes):
            counts.append(count)
            count = size = 0
    return [*counts, count] if count else counts


def step_s(layers: Sequence[Step], ring: Ring, bucket_mb: Optional[float] = None) -> float:
    """Return the seconds of a step with DDP's own buckets, or `bucket_cap_mb=bucket_mb`.

    `layers` are in the order of forward.
    """
    limit = int((DEFAULT_MB if bucket_mb is None else bucket_mb) * _MB)
    first = _FIRST_BYTES if bucket_mb is None else limit
    backward = list(reversed(layers))
    now = summed = math.fsum(layer.forward_s for layer in layers)
    begin = 0
    for count in buckets((layer.size_bytes for layer in backward), limit, first):
        bucket = backward[begin : begin + count]
        begin += count
        now += math.fsum(layer.backward_s for layer in bucket)
        summed = max(summed, now) + ring.sum_s(sum(layer.size_bytes for layer in bucket))
    return summed


def best_bucket(layers: Sequence[Step], ring: Ring) -> Tuple[Optional[int], float]:
    """Return the MB of the bucket that takes least time, and that time; None: DDP's own buckets.

    Of equal times DDP's own buckets or the largest ones count.
    """
    tried: List[Tuple[Optional[int], float]] = [(None, step_s(layers, ring))]
    tried += [(bucket_mb, step_s(layers, ring, bucket_mb)) for bucket_mb in reversed(BUCKETS_MB)]
    return min(tried, key=lambda trial: round(trial[1], 9))


def whole_s(layers: Sequence[Step], ring: Ring) -> float:
    """Return the seconds of a step that sums all gradients in one piece, behind backward."""
    compute = math.fsum(layer.forward_s + layer.backward_s for layer in layers)
    return compute + ring.sum_s(sum(layer.size_bytes for layer in layers))

"""Predicted times of a training step, and what follows from them."""

import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from bytescheduler._advise import ddp, fsdp
from bytescheduler._advise.coded import NO_CODING, Coded, CodingSeconds, coded_job, method_of
from bytescheduler._advise.links import (
    busiest_load,
    model_bytes_per_s,
    pushed_bytes_per_s,
    ring_load,
)
from bytescheduler._advise.models import Step, ideal_s, no_overlap_s
from bytescheduler._advise.shape import Shape
from bytescheduler._native import Prediction, partition_and_credit, predict
from bytescheduler._process.say import counted
from bytescheduler.errors import ConfigError

__all__ = ["FEW", "GOODPUT", "POLICIES", "Cluster", "advise", "table"]

GOODPUT = 0.953  # share of an Ethernet link that TCP's payload gets, with frames of 1500 bytes
POLICIES = {"ours": 0, "fifo": 1, "p3": 2, "dist_sync": 3}
_OF_OURS = ("ours", "fifo")  # the workers of a host add up, and a single copy leaves it
_STEPS = 4
# Below these shares a gain is none.
_LITTLE = 0.02
_NO_MATTER = 0.05
_FEWEST_SERVERS = 1.03  # times the time with many
_MOST_SERVERS = 4096
_TRIES = 4
FEW = 8  # workers that stand for all
# Workers times servers that are simulated; each takes some 6 KB.
_MOST_PAIRS = 1 << 21


class Cluster(NamedTuple):
    """Hosts and links; each node has a host of its own unless servers are together with workers."""

    workers: int
    servers: int
    bits_per_s: float
    latency_s: float
    # If either is None, both are the ones that a job takes for these links and servers.
    partition_bytes: Optional[int] = None
    credit_bytes: Optional[int] = None
    most_workers: int = FEW
    together: int = 0  # servers on workers' hosts
    factors: Tuple[Tuple[int, float], ...] = ()  # single hosts' part of the rate
    per_host: int = 1  # workers on each of the hosts that have any

    @property
    def shape(self) -> Shape:
        """Which nodes share hosts, and which hosts have other links."""
        return Shape(self.workers, self.servers, self.together, self.factors, self.per_host)

    @property
    def bytes_per_s(self) -> float:
        """The payload that a link moves in a second, each way."""
        return GOODPUT * self.bits_per_s / 8

    @property
    def model_bytes_per_s(self) -> float:
        """How much of the model the busiest link lets all workers push and get back in a second."""
        return model_bytes_per_s(self.shape, self.bytes_per_s, host_copy=True)

    @property
    def placed(self) -> bool:
        """True if nodes share hosts or links differ."""
        return bool(self.together or self.factors or self.per_host > 1)

    @property
    def ring(self) -> ddp.Ring:
        """The workers alone, which sum without servers; within a host they cross no link."""
        rates = self.shape.rates(self.bytes_per_s)
        slowest = min(rates[host] for host in self.shape.worker_hosts)
        if self.shape.hosts_of_workers == 1:
            slowest = math.inf
        return ddp.Ring(self.workers, slowest, self.latency_s)

    def _places(self, worker_hosts: List[int]) -> Optional[List[Tuple[int, float]]]:
        """Return the host of each worker, then of each server, and its rate; None: not `placed`."""
        if not self.placed:
            return None
        rates = self.shape.rates(self.bytes_per_s)
        return [(host, rates[host]) for host in worker_hosts + self.shape.server_hosts]

    @property
    def sizes(self) -> Tuple[int, int]:
        """Partition and credit, in bytes."""
        if self.partition_bytes is None or self.credit_bytes is None:
            return partition_and_credit(
                bytes_per_second=self.bytes_per_s,
                round_trip_s=2 * self.latency_s,
                servers=self.servers,
                adds_up=1 < len(set(self.shape.worker_hosts)) < self.workers,
            )
        return self.partition_bytes, self.credit_bytes

    def predict(
        self,
        layers: List[Step],
        policy: str,
        steps: int = _STEPS,
        coding_s: CodingSeconds = NO_CODING,
    ) -> Prediction:
        """Let the engine replay the layers (src/predict).

        With a policy of ours a single worker stands for all workers of a host.
        """
        partition, credit = self.sizes
        hosts = self.shape.worker_hosts
        if policy in _OF_OURS:
            hosts = sorted(set(hosts))
        return predict(
            [(layer.size_bytes, layer.forward_s, layer.backward_s) for layer in layers],
            workers=len(hosts),
            servers=self.servers,
            policy=POLICIES[policy],
            bytes_per_second=self.bytes_per_s,
            latency_s=self.latency_s,
            partition_bytes=partition,
            credit_bytes=credit,
            steps=steps,
            most_workers=self.most_workers,
            coding_s=coding_s,
            places=self._places(hosts),
        )

    def predict_coded(self, coded: Coded) -> Prediction:
        """Let the engine replay a model that travels compressed, most urgent first."""
        partition, credit = coded.sizes(*self.sizes)
        cluster = self._replace(partition_bytes=partition, credit_bytes=credit)
        return cluster.predict(coded.layers, "ours", coding_s=coded.coding_s)

    def coding_times(self, coded: Coded) -> Dict[str, float]:
        """Return how long coding takes a core in a step, of each worker and of each server."""
        encode_s, add_s, encode_sum_s, decode_s = coded.coding_s
        size_bytes = sum(layer.size_bytes for layer in coded.layers)
        of_server_s = self.shape.hosts_of_workers * add_s + encode_sum_s
        return {
            "worker": size_bytes * (encode_s + decode_s),
            "server": size_bytes * of_server_s / self.servers,
        }


def _most_used(layers: List[Step], cluster: Cluster) -> int:
    """Return how many servers can have a partition of the model; at least one."""
    partition, _ = cluster.sizes
    return max(1, sum(-(-layer.size_bytes // partition) for layer in layers))


def _recommended(
    layers: List[Step], cluster: Cluster, ours: float, tell: Callable[[str], None]
) -> int:
    """Return about how few servers make a step take next to no longer than many do."""

    def predict(tried: Cluster) -> float:
        tell(f"simulating {_NAMES['ours']} with {counted(tried.servers, 'server')}")
        return tried.predict(layers, "ours").step_s

    if cluster.most_workers > FEW:  # many tries with few rather than few with many
        cluster = cluster._replace(most_workers=FEW)
        ours = predict(cluster)
    most = min(cluster.workers, _MOST_SERVERS, _most_used(layers, cluster))
    aim = _FEWEST_SERVERS * ideal_s(layers, cluster._replace(servers=most).model_bytes_per_s)
    servers = 1
    while servers < most:
        if ideal_s(layers, cluster._replace(servers=servers).model_bytes_per_s) <= aim:
            break
        servers += 1
    most = min(most, 4 * servers)
    if most == 1:
        return 1
    plenty = cluster._replace(servers=most)
    best = ours if plenty == cluster else predict(plenty)
    for _ in range(_TRIES):
        if servers >= most:
            break
        fewer = cluster._replace(servers=servers)
        taken = ours if fewer == cluster else predict(fewer)
        if taken <= _FEWEST_SERVERS * best:
            return servers
        servers = math.ceil(1.25 * servers + 0.5)
    return most


def _verdict(times: Dict[str, float], compute: float, baseline: str) -> str:
    if times["no_overlap"] <= (1 + _NO_MATTER) * compute:
        return "compute-bound"
    if times["ours"] > times["no_overlap"]:
        return "unsure"
    if times["ours"] >= (1 - _LITTLE) * times[baseline]:
        return "no gain"
    if times["ours"] <= (1 - _LITTLE) * times["fifo"]:
        return "priority helps"
    if times["ours"] > (1 + _LITTLE) * times["fifo"]:
        return "priority costs"
    return "overlap helps"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _sentences(advice: Dict[str, Any]) -> str:
    times, compute = advice["step_s"], advice["compute_s"]
    baseline = _names_of(advice)[advice["compared_with"]]
    saved = 1 - times["ours"] / times[advice["compared_with"]]
    helps = f"It will help: a step takes {_percent(saved)} less than with {baseline}"
    same = saved >= -_LITTLE
    words = {
        "compute-bound": "It will not help: compute-bound. Even without any overlap the network "
        f"adds only {_percent(times['no_overlap'] / compute - 1)} to the compute.",
        "unsure": "This prediction is not sure: a step is found to take longer than one without "
        "overlap, of which latency and servers with unequal shares are not counted. Measure it.",
        "no gain": f"It will not help: a step takes {'as long as' if same else 'longer than'} with "
        f"{baseline}.",
        "priority helps": f"{helps}, and priority is worth {_percent(advice['priority_gain'])} of "
        "first come first served.",
        "overlap helps": f"{helps}. Cutting tensors earns it; priority adds next to nothing here.",
        "priority costs": f"{helps}. But with these partitions it takes "
        f"{_percent(-advice['priority_gain'])} more than first come first served: leave tuning on, "
        "which looks for better ones, or try smaller"
        " BYTESCHEDULER_PARTITION and BYTESCHEDULER_CREDIT here.",
    }[advice["verdict"]]
    if times.get("p3", math.inf) < (1 - _LITTLE) * times["ours"]:
        words += f" MXNet's P3 would take {_percent(1 - times['p3'] / times['ours'])} less."
    if times["ours"] > 1.2 * compute:
        wait = _percent(1 - compute / times["ours"])
        words += f" The network stays the limit: workers wait for it {wait} of a step."
    if advice["recommended_servers"] > advice["servers"]:
        words += f" {counted(advice['recommended_servers'], 'server')} would be faster."
    elif advice["recommended_servers"] <= 0.9 * advice["servers"]:
        words += f" {advice['recommended_servers']} of the servers would do."
    if "compression" in advice:
        words += _gain_of(advice["compression"]["method"], 1 - times["coded"] / times["ours"])
    return words


def _gain_of(method: str, saved: float) -> str:
    if abs(saved) < _LITTLE:
        return f" With {method} it takes as long as without."
    return f" With {method} it takes {_percent(abs(saved))} {'less' if saved > 0 else 'more'}."


def _check_size(cluster: Cluster) -> None:
    """Raise ConfigError if there is too much to simulate."""
    most = cluster.workers if cluster.placed else cluster.most_workers
    simulated = min(cluster.workers, most)
    if simulated * cluster.servers > _MOST_PAIRS:
        raise ConfigError(
            f"{counted(simulated, 'worker')} with {counted(cluster.servers, 'server')} are too "
            "many to simulate: want at "
            f"most {_MOST_PAIRS // cluster.servers} with this number of servers (--simulate)",
            1,
        )


def advise(
    layers: List[Step],
    cluster: Cluster,
    tell: Callable[[str], None] = lambda _step: None,
    framework: str = "mxnet",
    compression: Optional[str] = None,
) -> Dict[str, Any]:
    """Return the predictions for a model on a cluster, and what to make of them.

    `tell` gets what is simulated next, which may take minutes.  `framework` is one of
    `profile.FRAMEWORKS`; the framework's own data parallel training is what ours is compared with.
    `compression` is a method of `coded.method_of`.

    Raises
    ------
    ConfigError
        There is too much to simulate, or no such method.
    """
    coded = None
    if compression is not None:
        coded = coded_job(layers, method_of(compression), compression.partition("=")[0])
    compute = math.fsum(layer.forward_s + layer.backward_s for layer in layers)
    if compute <= 0:
        raise ConfigError("the layers take no time", 1)
    _check_size(cluster)
    runs: Dict[str, Prediction] = {}
    policies = _SIMULATED[framework]
    for policy in policies:
        tell(f"simulating {_NAMES[policy]}, {len(runs) + 1} of {len(policies)}")
        runs[policy] = cluster.predict(layers, policy)
    most = cluster.servers if cluster.placed else _most_used(layers, cluster)
    used = cluster._replace(servers=min(cluster.servers, most))
    times = {
        "no_overlap": no_overlap_s(
            layers, pushed_bytes_per_s(used.shape, used.bytes_per_s, host_copy=True)
        ),
        **{policy: run.step_s for policy, run in runs.items()},
        "ideal": ideal_s(layers, used.model_bytes_per_s),
    }
    advice: Dict[str, Any] = {
        "framework": framework,
        "layers": len(layers),
        "bytes": sum(layer.size_bytes for layer in layers),
        "compute_s": compute,
        "workers": cluster.workers,
        "servers": cluster.servers,
        "together": cluster.together,
        "factors": [list(factor) for factor in cluster.factors],
        "per_host": cluster.per_host,
        "bits_per_s": cluster.bits_per_s,
        "simulated_workers": runs["ours"].simulated_workers,
        "step_s": times,
        "compared_with": "dist_sync",
        "priority_gain": 1 - times["ours"] / times["fifo"],
        # Other numbers of servers would be other placements.
        "recommended_servers": (
            cluster.servers
            if cluster.placed
            else _recommended(layers, cluster, times["ours"], tell)
        ),
    }
    if cluster.per_host > 1:
        advice["link_models"] = {
            "worker_copies": busiest_load(cluster.shape),
            "host_copy": busiest_load(cluster.shape, host_copy=True),
            "ring": ring_load(cluster.shape),
        }
    if framework == "torch":
        bucket_mb, times["ddp_best"] = ddp.best_bucket(layers, cluster.ring)
        times["ddp"] = ddp.step_s(layers, cluster.ring)
        times.update(_sharded_s(layers, cluster))
        advice.update(compared_with="ddp_best", bucket_mb=bucket_mb)
    if framework == "tensorflow":
        times["mirrored"] = ddp.whole_s(layers, cluster.ring)
        advice.update(compared_with="mirrored")
    if coded is not None:
        tell(f"simulating {_NAMES['ours']} with {compression}")
        times["coded"] = cluster.predict_coded(coded).step_s
        advice["compression"] = {
            "method": compression,
            "bytes": sum(layer.size_bytes for layer in coded.layers),
            "coding_s": cluster.coding_times(coded),
        }
    advice["verdict"] = _verdict(times, compute, advice["compared_with"])
    advice["text"] = _sentences(advice)
    return advice


def _sharded_s(layers: List[Step], cluster: Cluster) -> Dict[str, float]:
    """Return the seconds of a step with FSDP2, by the names of the replay's arms."""
    ours = fsdp.over_ours(cluster.ring, cluster.per_host)
    times = {}
    for backend, calls in (("", fsdp.over_gloo(cluster.ring)), ("_backend", ours)):
        times[f"fsdp{backend}"] = fsdp.step_s(layers, calls, reshards=False)
        times[f"fsdp_reshard{backend}"] = fsdp.step_s(layers, calls, reshards=True)
    return times


# The policies of the engine's simulation.
_SIMULATED = {
    "torch": ("fifo", "ours"),
    "tensorflow": ("fifo", "ours"),
    "mxnet": ("dist_sync", "fifo", "p3", "ours"),
}
_NAMES = {
    "no_overlap": "no overlap",
    "ddp": "DDP",
    "ddp_best": "DDP, best bucket",
    "fsdp": "FSDP2 over Gloo",
    "fsdp_reshard": "FSDP2 over Gloo, reshard",
    "fsdp_backend": "FSDP2 over ours",
    "fsdp_reshard_backend": "FSDP2 over ours, reshard",
    "mirrored": "TensorFlow's strategy",
    "dist_sync": "MXNet's dist_sync",
    "fifo": "first come first served",
    "p3": "MXNet's P3",
    "ours": "bytescheduler",
    "coded": "compressed",
    "ideal": "ideal",
}


def _names_of(advice: Dict[str, Any]) -> Dict[str, str]:
    """Return the names of the times, in the order of the table."""
    names = {name: text for name, text in _NAMES.items() if name in advice["step_s"]}
    if "ddp" in names:
        bucket_mb = advice["bucket_mb"]
        names["ddp"] = f"DDP in buckets of {ddp.DEFAULT_MB} MB"
        names["ddp_best"] = f"DDP in buckets of {bucket_mb} MB" if bucket_mb else names["ddp"]
    if "coded" in names:
        names["coded"] = f"with {advice['compression']['method']}"
    return names


def table(advice: Dict[str, Any]) -> str:
    """Return what `advise` returned, for people."""
    seconds = advice["step_s"]
    head = (
        f"{counted(advice['layers'], 'layer')}, {advice['bytes'] / 1e6:.1f} MB of gradients, "
        f"{advice['compute_s']:.3f} s of compute a step"
    )
    times = {name: seconds[key] for key, name in _names_of(advice).items()}
    rows = [
        f"  {name:<24}{step_s:8.3f} s{advice['compute_s'] / step_s:8.0%}"
        for name, step_s in times.items()
    ]
    columns = f"  {'predicted step':<24}{'':8}  {'computing':>8}"
    lines = [head, columns, *rows]
    carried = advice.get("link_models")
    if carried is None and not advice["together"] and not advice["factors"]:
        lines.append(f"servers to use: {advice['recommended_servers']}")
    if carried is not None:
        lines.append(
            "the busiest link carries, each way, a step: "
            f"{carried['host_copy']:.2f} models with a copy a host, "
            f"{carried['worker_copies']:.2f} with a copy a worker, {carried['ring']:.2f} in a ring "
            "of the workers"
        )
    if "compression" in advice:
        coding_s = advice["compression"]["coding_s"]
        lines.append(
            f"coding with {advice['compression']['method']} takes a core, a step: "
            f"{coding_s['worker']:.3f} s of each worker, {coding_s['server']:.3f} s of each server"
        )
    return "\n".join([*lines, advice["text"]])

"""Blocking collectives of torch.distributed on rate-limited hosts: over Gloo and over our backend.

A process on each host has a group of both. Each collective of each size is repeated by one and by
the other in turns, so that other load of the machine meets both. Each turn ends with a call whose
result is checked. Needs root (network namespaces) and iproute2.

    python -m benchmarks.pytorch.collectives --out collectives.json
    python -m benchmarks.pytorch.collectives -w 4 --names all_reduce,all_gather --turns 5

A size is that of the larger of a call's tensors, on a rank. Printed are, for each collective and
size, medians over turns: milliseconds of a call, and the ratio of ours to Gloo in the same turn.
"""

import argparse
import statistics
import sys
import time
from typing import Any, Callable, Dict, List

from benchmarks.lab import arms as lab_arms
from benchmarks.lab import lab_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch import arms
from bytescheduler._advise.shape import Shape

SIZES = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
BACKENDS = ("ours", "gloo")
MOST_S = 0.4  # A backend repeats a call for about this time in each turn.
WARM_UPS = 3
Tensor = Any  # torch is imported by workers alone
Group = Any
# Makes a call, and returns the tensor with this rank's result, if it has any.
Call = Callable[[], Tensor]


class Calls:
    """The calls of a rank on tensors of a size; rank r sends r + 1 to each rank.

    Parameters
    ----------
    numel : int
        Elements of the larger tensor: a multiple of the number of ranks.
    group : ProcessGroup
        Of all ranks.
    """

    def __init__(self, numel: int, group: Group) -> None:
        import torch
        import torch.distributed as dist

        self._dist, self._group = dist, group
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._large = torch.empty(numel)
        self._other = torch.empty(numel)
        self._small = torch.empty(numel // self._size)

    def _sent(self, tensor: Tensor) -> Tensor:
        return tensor.fill_(self._rank + 1.0)

    def all_reduce(self) -> Tensor:
        """Sum in place."""
        self._dist.all_reduce(self._sent(self._large), group=self._group)
        return self._large

    def reduce_scatter(self) -> Tensor:
        """Sum to a shard on each rank."""
        sent = self._sent(self._large)
        self._dist.reduce_scatter_tensor(self._small, sent, group=self._group)
        return self._small

    def all_gather(self) -> Tensor:
        """Gather on all ranks."""
        sent = self._sent(self._small)
        self._dist.all_gather_into_tensor(self._large, sent, group=self._group)
        return self._large

    def all_to_all(self) -> Tensor:
        """Send a shard to each rank."""
        sent = self._sent(self._large)
        self._dist.all_to_all_single(self._other, sent, group=self._group)
        return self._other

    def broadcast(self) -> Tensor:
        """Send to all ranks."""
        self._dist.broadcast(self._sent(self._large), 0, group=self._group)
        return self._large

    def reduce(self) -> Tensor:
        """Sum to a rank."""
        self._dist.reduce(self._sent(self._large), 0, group=self._group)
        return None if self._rank else self._large

    def gather(self) -> Tensor:
        """Gather on a rank."""
        parts = list(self._large.chunk(self._size)) if self._rank == 0 else None
        self._dist.gather(self._sent(self._small), parts, 0, group=self._group)
        return None if self._rank else self._large

    def scatter(self) -> Tensor:
        """Send a shard to each rank, from one."""
        sent = self._sent(self._large)
        parts = list(sent.chunk(self._size)) if self._rank == 0 else None
        self._dist.scatter(self._small, parts, 0, group=self._group)
        return self._small

    def send(self) -> Tensor:
        """Send from rank 0 to rank 1."""
        if self._rank == 0:
            self._dist.send(self._sent(self._large), 1, group=self._group)
        elif self._rank == 1:
            self._dist.recv(self._large, 0, group=self._group)
            return self._large
        return None

    def call(self, name: str) -> Call:
        """Return the call of a name."""
        found: Call = getattr(self, name)
        return found


def wanted(name: str, size: int) -> List[float]:
    """Return the numbers of a result, each in an equal share of it, in order."""
    summed = [size * (size + 1) / 2]
    of_ranks = [rank + 1.0 for rank in range(size)]
    found = dict.fromkeys(("all_reduce", "reduce_scatter", "reduce"), summed)
    found.update(dict.fromkeys(("all_gather", "all_to_all", "gather"), of_ranks))
    return found.get(name, [1.0])


NAMES = [
    *("all_reduce", "reduce_scatter", "all_gather", "all_to_all"),
    *("broadcast", "reduce", "gather", "scatter", "send"),
]


def check(name: str, result: Tensor, size: int) -> None:
    """End with an error if a result is wrong; each share is looked at where it begins and ends."""
    if result is None:
        return
    numbers = wanted(name, size)
    for share, number in zip(result.chunk(len(numbers)), numbers):
        if float(share[0]) != number or float(share[-1]) != number:
            raise SystemExit(f"{name} of {result.numel()} numbers is wrong: want {number}")


def _seconds(call: Call, group: Group, times: int) -> float:
    """Return the seconds of one of `times` calls; some ranks only send, so all meet at the end."""
    import torch.distributed as dist

    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(times):
        call()
    dist.barrier(group)
    return (time.perf_counter() - begin) / times


def measure(args: argparse.Namespace) -> None:
    """Run one worker; report the seconds of a call in each turn, by name, size and backend."""
    import torch
    import torch.distributed as dist

    from benchmarks.pytorch import ways

    torch.set_num_threads(1)
    ways.join(arms.ARMS["ddp-backend"])
    groups = {"ours": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    size = dist.get_world_size()
    found: List[Dict[str, Any]] = []
    for name in args.names:
        for size_bytes in args.sizes:
            numel = max(1, size_bytes // 4 // size) * size
            calls = {of: Calls(numel, group).call(name) for of, group in groups.items()}
            turns: Dict[str, List[float]] = {backend: [] for backend in BACKENDS}
            counts = {}
            for backend, call in calls.items():
                check(name, call(), size)
                once = torch.tensor(_seconds(call, groups[backend], WARM_UPS))
                dist.broadcast(once, 0)
                counts[backend] = max(1, min(200, int(MOST_S / float(once))))
            for _ in range(args.turns):
                for backend, call in calls.items():
                    turns[backend].append(_seconds(call, groups[backend], counts[backend]))
                    check(name, call(), size)
            found.append({"name": name, "bytes": size_bytes, **turns})
    lab_job.report(found)
    dist.destroy_process_group()


def rows_of(runs: List[List[Dict[str, Any]]]) -> Dict[str, Dict[str, float]]:
    """Return milliseconds of each call, and the ratio to Gloo; a run is what rank 0 has seen."""
    rows: Dict[str, Dict[str, float]] = {}
    for of_runs in zip(*runs):
        name = f"{of_runs[0]['name']} {of_runs[0]['bytes']}"
        turns = {of: [seconds for run in of_runs for seconds in run[of]] for of in BACKENDS}
        row = {f"{of}_ms": round(1e3 * statistics.median(turns[of]), 3) for of in BACKENDS}
        ratios = [ours / gloo for ours, gloo in zip(turns["ours"], turns["gloo"])]
        rows[name] = {**row, "to_gloo": round(statistics.median(ratios), 3)}
    return rows


def main() -> None:
    """Run the job several times in the lab and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-w", "--workers", type=options.count(2), default=2, help="and hosts")
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    parser.add_argument("--names", type=options.names(NAMES), default=NAMES, help="of collectives")
    parser.add_argument("--sizes", type=options.counts, default=SIZES, help="bytes")
    parser.add_argument("--turns", type=options.count(), default=5, help="of each backend")
    parser.add_argument("--repeats", type=options.count(), default=1)
    parser.add_argument("--timeout", type=options.seconds, default=900, help="seconds of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args)
        return
    shape = Shape(args.workers, args.workers, args.workers)
    words = ["--worker", "--turns", str(args.turns), "--names", ",".join(args.names)]
    words += ["--sizes", ",".join(str(size) for size in args.sizes)]
    worker = [sys.executable, "-m", "benchmarks.pytorch.collectives", *words]
    args.arms = ["all"]

    def run(_: str) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = arms.run("ddp-backend", worker, args.timeout, shape)[0]
        return found

    with lab_job.lab(args.rate, shape):
        about = {"workers": args.workers, "rate": args.rate}
        lab_arms.alternate(args, run, rows_of, about)


if __name__ == "__main__":
    main()

"""Blocking sums of one tensor on rate-limited hosts: ours without servers, Gloo and Open MPI.

Open MPI's `mpirun` starts a worker on each host. The workers sum the same tensor by each mode in
turns, so that other load of the machine meets all modes: `direct` is `push_pull_inplace` of
`bytescheduler.torch`, `gloo` is `all_reduce` of torch.distributed, `mpi` is MPI_Allreduce with
sockets. All sums are checked. Needs root (network namespaces), iproute2 and Debian's openmpi-bin.

    python -m benchmarks.pytorch.all_reduce --out all-reduce.json

Printed are, for each size, medians over turns: milliseconds of a sum, and the ratio of direct to
the faster of the two libraries in the same turn, as JSON.
"""

import argparse
import contextlib
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from benchmarks.lab import arms, lab_job, local_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch import mpirun
from bytescheduler._advise.shape import Shape

MODES = ("direct", "gloo", "mpi")
SIZES = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
MOST_S = 0.4  # A mode repeats its sum for about this time in each turn.
WARM_UPS = 3
STRIDE = 1021  # between numbers that are checked after each turn
MPI_LIBRARY = "libmpi.so.40"


class _Mpi:
    """Open MPI's library, called without its headers."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(MPI_LIBRARY, mode=ctypes.RTLD_GLOBAL)
        self._library.MPI_Init(None, None)
        self._world, self._float, self._sum = (
            ctypes.addressof(ctypes.c_char.in_dll(self._library, name))
            for name in ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum")
        )

    def all_reduce(self, tensor: Any) -> None:  # noqa: ANN401 - torch is imported by workers alone
        code = self._library.MPI_Allreduce(
            ctypes.c_void_p(1),  # MPI_IN_PLACE
            ctypes.c_void_p(tensor.data_ptr()),
            ctypes.c_int(tensor.numel()),
            ctypes.c_void_p(self._float),
            ctypes.c_void_p(self._sum),
            ctypes.c_void_p(self._world),
        )
        if code != 0:
            raise SystemExit(f"MPI_Allreduce failed with code {code}")

    def settle(self) -> None:
        """Wait for all ranks: the library sends the last bytes of a sum only while it is called."""
        self._library.MPI_Barrier(ctypes.c_void_p(self._world))

    def finalize(self) -> None:
        self._library.MPI_Finalize()


class _Way(NamedTuple):
    """A mode: what sums a tensor in place, and what is called behind its sums."""

    add_up: Callable[[Any], object]
    settle: Callable[[], None] = lambda: None


@contextlib.contextmanager
def _joined(store: str, rank: int, size: int) -> "Iterator[Dict[str, _Way]]":
    """Join the job by each mode."""
    import torch.distributed as dist

    import bytescheduler.torch as bps

    mpi = _Mpi()
    bps.init()
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=size)
    yield {
        "direct": _Way(lambda tensor: bps.push_pull_inplace(tensor, False, f"of {tensor.numel()}")),
        "gloo": _Way(dist.all_reduce),
        "mpi": _Way(mpi.all_reduce, mpi.settle),
    }
    dist.destroy_process_group()
    bps.shutdown()
    mpi.finalize()


def _seconds(way: _Way, tensor: Any, rank: int, size: int, sums: int) -> float:  # noqa: ANN401
    """Return the seconds of one of `sums` sums; end with an error if the last sum is wrong."""
    tensor.fill_(0.0)
    way.add_up(tensor)  # all workers are here
    begin = time.perf_counter()
    for _ in range(sums):
        way.add_up(tensor)
    seconds = (time.perf_counter() - begin) / sums
    tensor.fill_(rank + 1.0)
    way.add_up(tensor)
    way.settle()
    wanted = size * (size + 1) / 2
    if not bool((tensor[::STRIDE] == wanted).all()) or float(tensor[-1]) != wanted:
        raise SystemExit(f"a sum of {tensor.numel()} numbers is wrong: want {wanted}")
    return seconds


def _results(store: str) -> pathlib.Path:
    """Return the file for what worker 0 has measured: mpirun cuts and mixes long lines."""
    return pathlib.Path(store + ".json")


def measure(sizes: List[int], turns: int, store: str) -> None:
    """Write down the seconds of a sum of each turn, by mode and size; runs in the workers."""
    import torch

    torch.set_num_threads(1)
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    found: Dict[str, Dict[int, List[float]]] = {mode: {of: [] for of in sizes} for mode in MODES}
    with _joined(store, rank, size) as ways:
        for of in sizes:
            tensor = torch.zeros(of // 4)
            counts = {}
            for mode, way in ways.items():
                once = torch.tensor(_seconds(way, tensor, rank, size, WARM_UPS))
                torch.distributed.broadcast(once, 0)
                counts[mode] = max(1, min(200, int(MOST_S / float(once))))
            for _ in range(turns):
                for mode, way in ways.items():
                    found[mode][of].append(_seconds(way, tensor, rank, size, counts[mode]))
    if rank == 0:
        _results(store).write_text(json.dumps(found))


def run_job(args: argparse.Namespace, shape: Shape) -> Dict[str, Dict[str, List[float]]]:
    """Run a job to its end and return milliseconds of a sum of each turn, by mode and size."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        hosts = [lab_job.place(host) for host in shape.worker_hosts]
        store = str(pathlib.Path(folder) / "store")
        worker = [sys.executable, "-m", "benchmarks.pytorch.all_reduce", "--worker"]
        worker += [store, "--turns", str(args.turns)]
        worker += ["--sizes", ",".join(str(of) for of in args.sizes)]
        meeting = [f"DMLC_PS_ROOT_URI={hosts[0].address}"]
        meeting.append("GLOO_SOCKET_IFNAME=eth0")
        command = [*hosts[0].prefix, *mpirun.command_of(folder, shape, "--tag-output")]
        env = {**local_job.settings(), "PYTHONPATH": str(lab_job.ROOT), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [*command, "env", *meeting, *worker],
            env=env,
            stdout=subprocess.PIPE,
            check=False,
            text=True,
            timeout=args.timeout,
        )
        if ended.returncode != 0:
            raise SystemExit(f"the job failed with exit code {ended.returncode}:\n{ended.stdout}")
        measured = json.loads(_results(store).read_text())
    return {
        mode: {of: [1e3 * seconds for seconds in turns] for of, turns in sizes.items()}
        for mode, sizes in measured.items()
    }


def summary(runs: List[Dict[str, Dict[str, List[float]]]]) -> Dict[str, Dict[str, float]]:
    """Return for each size milliseconds of each mode, and what direct takes of the faster peer."""
    rows: Dict[str, Dict[str, float]] = {}
    for of in runs[0]["direct"]:
        turns = {mode: [ms for run in runs for ms in run[mode][of]] for mode in MODES}
        row = {f"{mode}_ms": round(statistics.median(turns[mode]), 3) for mode in MODES}
        for peer in ("gloo", "mpi"):
            ratios = [ours / theirs for ours, theirs in zip(turns["direct"], turns[peer])]
            row[f"to_{peer}"] = round(statistics.median(ratios), 3)
        rows[of] = row
    return rows


def main() -> None:
    """Run the job several times in the lab and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-w", "--workers", type=options.count(2), default=2, help="and hosts")
    parser.add_argument("--rate", type=lab_job.rate, default="1gbit", help="of each link")
    parser.add_argument("--sizes", type=options.counts, default=SIZES, help="bytes of a tensor")
    parser.add_argument("--turns", type=options.count(), default=9, help="of each mode")
    parser.add_argument("--repeats", type=options.count(), default=1)
    parser.add_argument("--timeout", type=options.seconds, default=600, help="seconds of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args.sizes, args.turns, args.worker)
        return
    shape = Shape(args.workers, args.workers, args.workers)
    args.arms = ["all"]
    with lab_job.lab(args.rate, shape):
        about = {"workers": args.workers, "rate": args.rate}
        arms.alternate(args, lambda _: run_job(args, shape), summary, about)


if __name__ == "__main__":
    main()

"""How often a byte of a tensor is copied in user space while it is pushed and pulled: counted.

One worker, one server, this host. Before memcpy and memmove of each process stands a library
(``count_copies.cc``) that adds up calls of at least 1 KiB. Sums are no copies: one worker's push is
copied where those of several are added up. MXNet is told to copy by memcpy, however large an array
is. Arms and jobs are those of benchmarks.jobs.throughput.

    python -m benchmarks.jobs.copies --build build/benchmarks --out copies.json

Reported for worker and server: bytes copied for each byte of a tensor, push and pull together.
"""

import argparse
import pathlib
import statistics
import tempfile
from typing import Dict, List

from benchmarks.jobs import throughput
from benchmarks.lab import arms, machine, options
from benchmarks.lab.output import add_out_option

ARMS = tuple(arm for arm in throughput.ARMS if arm != "tcp")
# Larger arrays it copies in a loop of its own.
COPIES_PLAINLY = {"MXNET_CPU_PARALLEL_SIZE": str((1 << 31) - 1)}
LIBRARY = "libcount_copies.so"
WORKER, SERVER = -1, 1  # among the processes of a job
Figures = Dict[str, Dict[str, float]]  # size -> process -> copies of each byte


class Counts:
    """Reads what worker and server have copied in each measurement of a job."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._begun: List[int] = []
        self.copied_bytes: List[List[int]] = []  # by measurement

    def watch(self, word: str, pids: List[int]) -> None:
        """Read the counts; called at the begin and the end of each measurement."""
        files = [self._folder / str(pids[index]) for index in (WORKER, SERVER)]
        if not all(file.exists() for file in files):
            raise SystemExit(f"{LIBRARY} counts nothing in these processes: {pids}")
        now = [int.from_bytes(file.read_bytes(), "little") for file in files]
        if word == "BEGIN":
            self._begun = now
        else:
            self.copied_bytes.append([end - begin for begin, end in zip(self._begun, now)])


def run(arm: str, args: argparse.Namespace) -> Figures:
    """Run a job and return what its processes copied."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Counts(pathlib.Path(folder))
        more = {
            "LD_PRELOAD": str(pathlib.Path(args.build, LIBRARY).resolve()),
            "BENCH_COPIES": folder,
            **COPIES_PLAINLY,
        }
        rows = throughput.run_job(arm, args.sizes, args, more=more, watch=counts.watch)
    figures = {}
    for row, (worker, server) in zip(rows, counts.copied_bytes):
        moved = int(row.name) * throughput.rounds_of(int(row.name))
        figures[row.name] = {"worker": worker / moved, "server": server / moved}
    return figures


def summary(runs: List[Figures]) -> Figures:
    """Return an arm's medians."""
    return {
        size: {
            process: round(statistics.median(of[size][process] for of in runs), 3)
            for process in of_size
        }
        for size, of_size in runs[0].items()
    }


def main() -> None:
    """Count all arms in turn and print how often they copy as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=throughput.bytes_of, default="1M,16M")
    arms.add_arms_option(parser, ARMS, "stock,kvstore,ours-sockets,ours,sockets,native")
    parser.add_argument("--repeats", type=options.count(), default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an arm's run")
    parser.add_argument(
        "--build", default="build/benchmarks", help=f"where wire_benchmark and {LIBRARY} lie"
    )
    machine.add_option(parser)
    add_out_option(parser)
    args = parser.parse_args()
    args.native = str(pathlib.Path(args.build, "wire_benchmark"))
    if not pathlib.Path(args.build, LIBRARY).exists():
        parser.error(f"--build {args.build}: {LIBRARY} is not there")
    arms.alternate(args, lambda arm: run(arm, args), summary)


if __name__ == "__main__":
    main()

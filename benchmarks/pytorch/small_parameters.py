"""A step of a model whose parameters are many and small, beside stock DDP and the model alone.

Two workers and a server on this host train layers of one weight of 8 x 8 floats, 256 bytes each.
One job makes all steps: the modes take turns, a few steps each, so that other load of the machine
meets all of them. No update waits from one turn to the next, as it would cost the other modes
time: without `model=` PyTorch tells of each call of a module meanwhile. Printed are medians over
turns, as JSON: milliseconds of a step, and the ratio to DDP in the same turn.

    python -m benchmarks.pytorch.small_parameters --out torch-small.json
"""

import argparse
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

from benchmarks.lab import arms, local_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch.steps import step_of, wrapped

WORKERS = 2
WARM_UP, STEPS, WIDTH = 5, 5, 8
MODES = ("alone", "ddp", "barrier", "crossing", "modelless")


def _model(count: int) -> Any:  # noqa: ANN401 - torch is imported by workers alone
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))


def _steps_of(mode: str, count: int) -> Tuple[Callable[[], None], Callable[[], None]]:
    """Return what makes one step of a model of its own, and what makes the updates that wait."""
    import torch

    model = _model(count)
    called = torch.nn.parallel.DistributedDataParallel(model) if mode == "ddp" else model
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=1e-4)
    if mode in ("alone", "ddp"):
        return step_of(called, optimizer, WIDTH), lambda: None
    optimizer = wrapped(optimizer, model, mode, mode)
    return step_of(called, optimizer, WIDTH), optimizer.synchronize


@contextlib.contextmanager
def _joined(store: str) -> "Iterator[None]":
    """Join this package's job, and a group of Gloo that meets by the file `store`."""
    import torch.distributed as dist

    import bytescheduler.torch as bps

    bps.init()
    where = f"file://{store}"
    dist.init_process_group("gloo", where, rank=bps.rank(), world_size=bps.size())
    yield
    dist.destroy_process_group()
    bps.shutdown()


def measure(count: int, turns: int, store: str) -> None:
    """Report the seconds of steps; runs in the workers."""
    import torch

    torch.set_num_threads(1)
    with _joined(store):
        steps = {mode: _steps_of(mode, count) for mode in MODES}
        for step, make_updates in steps.values():
            for _ in range(WARM_UP):
                step()
            make_updates()
        for turn in range(turns):
            for mode, (step, make_updates) in steps.items():
                local_job.worker_waits("BEGIN", f"{mode}:{turn}")
                step()  # a step across the barrier makes the updates of the step before
                begin = time.perf_counter()
                for _ in range(STEPS):
                    step()
                seconds = (time.perf_counter() - begin) / STEPS
                make_updates()
                local_job.worker_waits("END", f"{mode}:{turn}", [seconds])


def run_job(count: int, turns: int, timeout_s: float) -> Dict[str, List[float]]:
    """Run a job to its end and return milliseconds of a step of each turn, by mode."""
    found: Dict[str, List[float]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory() as folder:
        store = str(pathlib.Path(folder) / "store")
        worker = [sys.executable, "-m", "benchmarks.pytorch.small_parameters", "--worker", store]
        worker += ["--count", str(count), "--turns", str(turns)]
        with local_job.job(local_job.NODES["ours"], worker, {}, WORKERS) as job:
            for turn in range(turns):
                for mode in MODES:
                    seconds = job.turn(f"{mode}:{turn}", timeout_s)
                    found[mode].append(statistics.mean(seconds) * 1e3)
            job.ended()
    return found


def summary(runs: List[Dict[str, List[float]]]) -> Dict[str, float]:
    """Return milliseconds of a step of each mode, and its ratio to stock DDP."""
    row: Dict[str, float] = {}
    for mode in MODES:
        row[f"{mode}_ms"] = round(statistics.median(ms for run in runs for ms in run[mode]), 2)
        ratios = [ms / ddp for run in runs for ms, ddp in zip(run[mode], run["ddp"])]
        row[f"{mode}_to_ddp"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    """Run the job several times and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=options.count(), default=500, help="of parameters")
    parser.add_argument("--turns", type=options.count(), default=25, help="of each mode")
    parser.add_argument("--repeats", type=options.count(), default=1)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a part of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args.count, args.turns, args.worker)
        return
    args.arms = ["ours"]
    arms.alternate(
        args,
        lambda _: run_job(args.count, args.turns, args.timeout),
        summary,
        {"parameters": args.count, "bytes": 4 * WIDTH * WIDTH},
    )


if __name__ == "__main__":
    main()

"""The cost of a parameter to the training thread: microseconds over the bare optimizer.

Two workers and a server on this host train a model of small layers, whose sums cost next to
nothing. The same steps are made with the optimizer of torch alone and with ours: with a barrier,
crossing, and crossing where it does not know the model. A figure is the time of the processor on
the thread that trains, so neither a wait nor another thread is in it. Printed are medians over
steps and workers, as JSON.

    python -m benchmarks.pytorch.cost --out torch-cost.json
"""

import argparse
import statistics
import sys
import time
from typing import Any, Dict, List

from benchmarks.lab import arms, local_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.pytorch.steps import step_of, wrapped

WORKERS = 2
WARM_UP, STEPS, WIDTH = 10, 60, 8
OPTIMIZERS = ("sgd", "sgd-fused", "adam", "adam-fused")
MODES = ("bare", "barrier", "crossing", "modelless")


def _model(layers: int) -> Any:  # noqa: ANN401 - torch is imported by workers alone
    import torch

    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def _optimizer(name: str, model: Any) -> Any:  # noqa: ANN401 - torch is imported by workers alone
    import torch

    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name.split("-")[0]]
    return kind(model.parameters(), lr=1e-4, fused=name.endswith("-fused"))


def measure(layers: int) -> None:
    """Report the processor's seconds of each step; runs in the workers."""
    import torch

    import bytescheduler.torch as bps

    torch.set_num_threads(1)
    bps.init()
    for name in OPTIMIZERS:
        for mode in MODES:
            torch.manual_seed(7)
            model = _model(layers)
            optimizer = _optimizer(name, model)
            if mode != "bare":
                optimizer = wrapped(optimizer, model, f"{name}.{mode}", mode)
            step = step_of(model, optimizer, WIDTH)
            for _ in range(WARM_UP):
                step()
            seconds: List[float] = []
            local_job.worker_waits("BEGIN", f"{name}:{mode}")
            for _ in range(STEPS):
                begin = time.thread_time()
                step()
                seconds.append(time.thread_time() - begin)
            local_job.worker_waits("END", f"{name}:{mode}", seconds)
            if mode != "bare":
                optimizer.close()
    bps.shutdown()


def run_job(layers: int, timeout_s: float) -> Dict[str, float]:
    """Run a job to its end and return microseconds a step, by optimizer and mode."""
    worker = [sys.executable, "-m", "benchmarks.pytorch.cost", "--worker", str(layers)]
    found: Dict[str, float] = {}
    with local_job.job(local_job.NODES["ours"], worker, {}, WORKERS) as job:
        for name in OPTIMIZERS:
            for mode in MODES:
                seconds = job.turn(f"{name}:{mode}", timeout_s)
                found[f"{name}:{mode}"] = statistics.median(seconds) * 1e6
        job.ended()
    return found


def summary(runs: List[Dict[str, float]], layers: int) -> Dict[str, Dict[str, float]]:
    """Return microseconds a step of each row, and what ours adds for a parameter."""
    parameters = 2 * layers
    rows: Dict[str, Dict[str, float]] = {}
    for name in OPTIMIZERS:
        us = {mode: statistics.median(run[f"{name}:{mode}"] for run in runs) for mode in MODES}
        row = {f"{mode}_us": round(of, 1) for mode, of in us.items()}
        for mode in MODES[1:]:
            row[f"{mode}_us_a_parameter"] = round((us[mode] - us["bare"]) / parameters, 2)
        rows[name] = row
    return rows


def main() -> None:
    """Run the job several times and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=options.count(), default=100, help="of two parameters")
    parser.add_argument("--repeats", type=options.count(), default=3)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a part of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args.worker)
        return
    args.arms = ["ours"]
    arms.alternate(
        args,
        lambda _: run_job(args.layers, args.timeout),
        lambda runs: summary(runs, args.layers),
        {"layers": args.layers},
    )


if __name__ == "__main__":
    main()

"""What the examples share: the three lines that make training distributed, and the last report."""

import argparse
import hashlib
import sys
from typing import Any, Optional

import torch


class Job:
    """The place of this worker among all; one process alone without bytescheduler.

    Parameters
    ----------
    args : argparse.Namespace
        With `no_bytescheduler` and `no_crossing`.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._bps: Any = None
        self._crossing: Any = False if args.no_crossing else "auto"
        if not args.no_bytescheduler:
            import bytescheduler.torch as bps

            bps.init()
            self._bps = bps

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return self._bps.rank() if self._bps else 0

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._bps.size() if self._bps else 1

    @property
    def device(self) -> torch.device:
        """Where this worker trains."""
        if not torch.cuda.is_available():
            return torch.device("cpu")
        local = self._bps.local_rank() if self._bps else 0
        return torch.device("cuda", local % torch.cuda.device_count())

    def optimizer(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> torch.optim.Optimizer:
        """Return one that averages over workers; all begin with the weights of rank 0."""
        if self._bps is None:
            return optimizer
        wrapped = self._bps.DistributedOptimizer(
            optimizer,
            named_parameters=model.named_parameters(),
            model=model,
            crossing=self._crossing,
        )
        self._bps.broadcast_optimizer_state(wrapped, root_rank=0)
        return wrapped

    def average(self, value: float) -> float:
        """Return the average of a number over all workers."""
        if self._bps is None:
            return value
        return float(self._bps.push_pull(torch.tensor([value]), name="average of the examples"))

    def end(self) -> None:
        """Leave the job."""
        if self._bps is not None:
            self._bps.shutdown()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Let the caller choose what all examples know."""
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument(
        "--no-bytescheduler", action="store_true", help="train in one process with torch alone"
    )
    parser.add_argument(
        "--no-crossing", action="store_true", help="wait for all sums before each step ends"
    )


def digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 of all weights, by name; what batch norm has counted differs by worker."""
    found = hashlib.sha256()
    state = model.state_dict()  # with every update that is under way
    for name in sorted(name for name, _ in model.named_parameters()):
        found.update(name.encode())
        tensor = state[name].cpu().contiguous()
        found.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def finish(job: Job, model: torch.nn.Module, result: str, missed: Optional[str] = None) -> int:
    """Print the final line, leave the job, and return the exit code.

    Parameters
    ----------
    result : str
        What was reached.
    missed : str, optional
        What was wanted and not reached.
    """
    print(f"rank {job.rank}: final {result}, weights sha256 {digest(model)}", flush=True)
    if missed:
        print(f"rank {job.rank}: {missed}", file=sys.stderr, flush=True)
    job.end()
    return 1 if missed else 0

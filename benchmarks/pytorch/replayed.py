"""A worker that replays a model's layers with PyTorch: stock DDP, or ours."""

import os
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist

from benchmarks.lab import lab_job
from benchmarks.pytorch.arms import ARMS, Arm
from benchmarks.pytorch.layers import EVERY, Model, TakeAverage
from bytescheduler._advise.models import Step

Parts = Tuple[torch.nn.Module, Any]  # the module that is called, and the optimizer


def _ddp(model: Model, arm: Arm, scale: int) -> torch.nn.Module:
    dist.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=arm.bucket_mb / scale)


def _with_ddp(model: Model, arm: Arm, scale: int) -> Parts:
    return _ddp(model, arm, scale), TakeAverage(model.parameters())


MAKE: Dict[str, Callable[[Model, Arm, int], Parts]] = {"ddp": _with_ddp}


class Replayed:
    """A model whose steps are replayed by this worker."""

    def __init__(self, steps: List[Step], arm_name: str, scale: int) -> None:
        torch.manual_seed(7)
        arm = ARMS[arm_name]
        self._model = Model(steps)
        self._called, self._optimizer = MAKE[arm.kind](self._model, arm, scale)
        self._rank, self._size = self._place(arm)
        self._before = time.perf_counter()

    def _place(self, arm: Arm) -> Tuple[int, int]:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def _averages(self, iteration: int) -> Sequence[float]:
        """Return the average of each layer's gradients in a step, which differs in every one."""
        count = len(self._model.layers)
        if iteration < 0:
            return [0.0] * count
        return [iteration + layer + (self._size - 1) / 2 for layer in range(count)]

    def step(self, iteration: int, last: bool = False) -> float:
        """Do one; return the seconds since the step before, from loss to loss."""
        gradients = [
            float(iteration + layer + self._rank) for layer in range(len(self._averages(0)))
        ]
        self._model.expect(self._averages(iteration - 1), gradients)
        self._optimizer.zero_grad()
        loss = self._called(torch.zeros(1)).sum()
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        loss.backward()
        for group in self._optimizer.param_groups:
            group["every"] = 1 if last else EVERY
        self._optimizer.step()
        return seconds

    def check(self, iteration: int) -> None:
        """Compare all sums of the latest step, of that number."""
        if hasattr(self._optimizer, "synchronize"):
            self._optimizer.synchronize()
        for weight, average in zip(self._model.weights, self._averages(iteration)):
            assert torch.allclose(weight, torch.tensor(average)), "a sum is wrong"
        assert self._model.wrong == 0, "a step used a wrong sum"


def work(steps: List[Step], scale: int, arm: str, iterations: int) -> None:
    """Run one worker and report its step times."""
    replayed = Replayed(steps, arm, scale)
    last = iterations - 1
    seconds = [replayed.step(iteration, iteration == last) for iteration in range(iterations)]
    replayed.check(last)
    lab_job.report({"seconds": seconds})

"""A worker that replays a model's layers with PyTorch."""

import time
from typing import Sequence

import torch

from benchmarks.lab import lab_job
from benchmarks.lab.ranked import Told
from benchmarks.pytorch import ways
from benchmarks.pytorch.arms import ARMS
from benchmarks.pytorch.layers import EVERY, EXACT, HALVED, Model, TakeAverage, of_worker


class Replayed:
    """A model whose steps are replayed by this worker."""

    def __init__(self, model: Model, way: ways.Way, tolerance: float = EXACT) -> None:
        self._model = model
        self._tolerance = tolerance
        self._way = way
        self._before = time.perf_counter()

    def _averages(self, iteration: int) -> Sequence[float]:
        """Return the average of each layer's gradients in a step, which differs in every one."""
        count = len(self._model.layers)
        if iteration < 0:
            return [0.0] * count
        return [iteration + layer + (self._way.size - 1) / 2 for layer in range(count)]

    def step(self, iteration: int, last: bool = False) -> float:
        """Do one; return the seconds since the step before, from loss to loss."""
        count = len(self._model.layers)
        gradients = [float(iteration + layer + self._way.rank) for layer in range(count)]
        self._model.expect(self._averages(iteration - 1), gradients)
        optimizer = self._way.optimizer
        for group in optimizer.param_groups:
            group["every"] = 1 if last else EVERY
        optimizer.zero_grad()
        loss = self._way.called(torch.zeros(1)).sum()
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        loss.backward()
        optimizer.step()
        return seconds

    def check(self, iteration: int) -> None:
        """Compare all sums of the latest step, of that number."""
        weights = self._model.state_dict()  # with every update that is under way
        for layer, average in enumerate(self._averages(iteration)):
            weight, _ = of_worker(weights[f"layers.{layer}.weight"])
            assert torch.allclose(weight, torch.tensor(average), self._tolerance), "a sum is wrong"
        assert self._model.wrong == 0, "a step used a wrong sum"


def work(told: Told) -> None:
    """Run one worker and report its step times."""
    torch.set_num_threads(1)
    arm = ARMS[told.arm]
    tolerance = HALVED if arm.is_halved else EXACT
    model = Model(told.steps, tolerance)
    optimizer = TakeAverage(model.parameters())
    with ways.begin(model, optimizer, arm, told.scale) as way:
        if told.watched:
            lab_job.await_begin()
        replayed = Replayed(model, way, tolerance)
        last = told.iterations - 1
        seconds = [replayed.step(each, each == last) for each in range(told.iterations)]
        replayed.check(last)
        lab_job.report({"seconds": seconds})

"""Layers that take their time and no processor, as modules of PyTorch.

A layer holds one weight.  Forward compares some of its numbers with what the sums of the step
before must have left there.  Backward writes a gradient for real.  Both last as long as they are
told; a sleep that ends late makes the next layer shorter, so delays of timers do not add up.  What
hooks and guards take between two layers does add up, as on a processor.
"""

import time
from typing import Any, Iterable, List, Sequence, Tuple

import torch
from torch.distributed.tensor import DTensor

from bytescheduler._advise.models import Step

EVERY = 4096  # one number of a weight in 4096 is updated and compared
EXACT = 1e-5  # an average over three workers is rounded
HALVED = 2.0**-6  # so are bfloat16 and their sums


class Clock:
    """Lets time pass, and remembers by how much too much passed."""

    def __init__(self) -> None:
        self._late_s = 0.0

    def spend(self, begin_s: float, seconds: float) -> None:
        """Return `seconds` after `begin_s`, less what the last time took too long."""
        due_s = begin_s + seconds - self._late_s
        left_s = due_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        self._late_s = time.perf_counter() - due_s


class _Timed(torch.autograd.Function):
    """The pass of a layer, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: torch.Tensor,
        weight: torch.Tensor,
        layer: "Layer",
    ) -> torch.Tensor:
        begin_s = time.perf_counter()
        layer.compare(weight[::EVERY])
        layer.clock.spend(begin_s, layer.step.forward_s)
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        grad: torch.Tensor,
    ) -> Tuple[torch.Tensor, torch.Tensor, None]:
        begin_s = time.perf_counter()
        layer: Layer = ctx.layer
        gradient = torch.full_like(layer.weight, layer.gradient)
        layer.clock.spend(begin_s, layer.step.backward_s)
        return grad, gradient, None


class Layer(torch.nn.Module):
    """One layer of a profile.

    Attributes
    ----------
    expected : float
        Each number that the weight must have.
    gradient : float
        Each number of the gradient that backward writes.
    wrong : int
        How many passes have found another weight.
    """

    def __init__(self, step: Step, clock: Clock, tolerance: float = EXACT) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(step.size_bytes // 4))
        self.step = step
        self.clock = clock
        self.tolerance = tolerance
        self.expected = 0.0
        self.gradient = 0.0
        self.wrong = 0

    def compare(self, numbers: torch.Tensor) -> None:
        """Count a pass whose numbers are not as expected."""
        close = self.tolerance * max(1.0, self.expected)
        self.wrong += bool(((numbers - self.expected).abs() > close).any())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` when the layer would have been computed."""
        result: torch.Tensor = _Timed.apply(x, self.weight, self)
        return result


class Model(torch.nn.Module):
    """The layers of a profile, one after another."""

    def __init__(self, steps: Iterable[Step], tolerance: float = EXACT) -> None:
        super().__init__()
        clock = Clock()
        self.layers = torch.nn.ModuleList(Layer(step, clock, tolerance) for step in steps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` when all layers would have been computed."""
        for layer in self.layers:
            x = layer(x)
        return x

    def expect(self, averages: Sequence[float], gradients: Sequence[float]) -> None:
        """Say what each weight must be in the coming pass, and what each gradient will be."""
        for layer, average, gradient in zip(self.layers, averages, gradients):
            layer.expected, layer.gradient = average, gradient

    @property
    def wrong(self) -> int:
        """How many passes of layers have used another weight than they should."""
        return sum(layer.wrong for layer in self.layers)

    @property
    def weights(self) -> List[torch.Tensor]:
        """The weight of each layer."""
        return [layer.weight for layer in self.layers]


def of_worker(tensor: torch.Tensor) -> Tuple[torch.Tensor, int]:
    """Return the numbers that this worker has of a tensor, and how many are before them."""
    if not isinstance(tensor, DTensor):
        return tensor, 0
    mesh = tensor.device_mesh
    rows = -(-tensor.shape[0] // mesh.size())
    return tensor.to_local(), rows * mesh.get_local_rank()


class TakeAverage(torch.optim.Optimizer):
    """Writes averages into weights: one number in `every`, which takes next to no processor."""

    def __init__(self, params: Iterable[torch.nn.Parameter], every: int = EVERY) -> None:
        super().__init__(params, {"every": every})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take what has come."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    numbers, before = of_worker(weight)
                    every = slice(-before % group["every"], None, group["every"])
                    numbers[every].copy_(of_worker(weight.grad)[0][every])

"""Batch normalisation over the batches of all workers."""

import itertools
from typing import Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from bytescheduler.errors import UsageError
from bytescheduler.torch._api.push_pull import push_pull
from bytescheduler.torch._job.job import current

__all__ = ["SyncBatchNorm"]

_NUMBERS = itertools.count()


class SyncBatchNorm(_BatchNorm):  # type: ignore[misc]  # PyTorch's types are not read
    """Batch normalisation whose means and variances are those of all workers' batches.

    Workers may have batches of other sizes.  All of them make these modules in the same order, and
    run them equally often in training.  Evaluation needs no other worker.

    Parameters
    ----------
    num_features, eps, momentum, affine, track_running_stats
        As of `torch.nn.BatchNorm1d`; the input has that many channels in its second dimension.

    Raises
    ------
    UsageError
        The input has no second dimension, or all workers together have one value a channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self._name = f"SyncBatchNorm {next(_NUMBERS)}"

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002 - PyTorch's name
        if input.dim() < 2:
            raise UsageError(
                f"SyncBatchNorm: want batches of channels, got {input.dim()} dimensions; "
                "reshape the input to (batch, channels)",
                5,
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - PyTorch's name
        """Normalise; in training with the numbers of all workers.  Blocks."""
        self._check_input_dim(input)
        if not self.training or current().get().carrier is None:
            return super().forward(input)
        exact = torch.float64 if input.dtype == torch.float64 else torch.float32
        x = input.to(exact)
        mean, variance, count = self._moments(x)
        self._note(mean.detach(), variance.detach(), count)
        shape = [1, -1] + [1] * (x.dim() - 2)
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight.to(exact)
        y = (x - mean.view(shape)) * scale.view(shape)
        if self.bias is not None:
            y = y + self.bias.to(exact).view(shape)
        return y.to(input.dtype)

    def _moments(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, int]:
        """Return mean and variance of each channel over all workers, and how many values it has."""
        name = f"{self._name}, {x.dtype}"
        dims = [dim for dim in range(x.dim()) if dim != 1]
        ours = x.numel() // x.size(1)
        told = torch.cat([x.sum(dims), x.new_tensor([float(ours)])])
        total = push_pull(told, average=False, name=name)
        count = int(total[-1])
        if count < 2:
            raise UsageError(
                "SyncBatchNorm: all workers together have one value a channel; give larger batches",
                5,
            )
        mean = total[:-1] / count
        shape = [1, -1] + [1] * (x.dim() - 2)
        # A second round, as squares less the square of the mean would lose digits.
        squares = (x - mean.view(shape)).square().sum(dims)
        return mean, push_pull(squares, average=False, name=f"{name}, squares") / count, count

    def _note(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Let running statistics take part of a batch's."""
        if self.running_mean is None or self.running_var is None:
            return
        self.num_batches_tracked.add_(1)
        part = self.momentum
        if part is None:
            part = 1.0 / float(self.num_batches_tracked)
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), part)
            unbiased = variance * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), part)

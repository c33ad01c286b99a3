"""Workers with batches of different sizes: gradients count as the worker's optimizer says."""

import contextlib
import math
from typing import Any, Callable, Iterator, List

from bytescheduler.mxnet._stores.scaled_steps import trainer_of
from bytescheduler.mxnet._types import Updater

__all__ = ["Rescaling"]


def _rescale_of(updater: Updater) -> float:
    """Return the optimizer's rescale_grad; 0 if there is none that could be shared."""
    number = getattr(getattr(updater, "optimizer", None), "rescale_grad", None)
    usable = isinstance(number, (int, float)) and math.isfinite(number) and number > 0
    return float(number) if usable else 0.0  # type: ignore[arg-type]


def _loss_scale_of(updater: Updater) -> float:
    """Return a Trainer's factor of rescale_grad besides the batch size; all workers share it."""
    trainer: Any = trainer_of(getattr(updater, "optimizer", None))
    return 1.0 if trainer is None else float(trainer._scale)


class Rescaling:
    """Lets a worker with another rescale_grad push gradients that are multiplied accordingly.

    All workers update with rank 0's rescale_grad, which they learn at a call that all make.  So
    their weights stay alike, and each gradient counts as the optimizer of its worker says.

    Parameters
    ----------
    share : callable
        From a number to the numbers of all workers, by rank; blocks until all call it.
    """

    def __init__(self, share: Callable[[float], List[float]]) -> None:
        self._share = share
        self._calls = 0
        self._common = 0.0  # rank 0's; 0: not known
        self._loss_scale = 1.0  # that is in it

    @property
    def is_known(self) -> bool:
        """True if workers may differ from now on."""
        return self._common > 0

    def agree(self, updater: Updater, *, again: bool = False) -> None:
        """Learn rank 0's number, if all workers have a number; all call it alike.

        Blocks; but of many calls only the 1st, 2nd, 4th, ... asks.  `again` asks in any case.
        """
        self._calls += 1
        asks = not self.is_known and self._calls & (self._calls - 1) == 0
        if not asks and not again:
            return
        numbers = self._share(_rescale_of(updater))
        self._common = numbers[0] if min(numbers) > 0 else 0.0
        self._loss_scale = _loss_scale_of(updater)

    def factor(self, updater: Updater) -> float:
        """Return the factor of a gradient before it is pushed."""
        rescale = _rescale_of(updater) if self.is_known else 0.0
        return rescale / self._for_all(updater) if rescale > 0 else 1.0

    def _for_all(self, updater: Updater) -> float:
        return self._common * (_loss_scale_of(updater) / self._loss_scale)

    @contextlib.contextmanager
    def common(self, updater: Updater) -> Iterator[None]:
        """Let the optimizer update with the number of all workers."""
        if self.factor(updater) == 1.0:
            yield
            return
        optimizer = updater.optimizer
        rescale, optimizer.rescale_grad = optimizer.rescale_grad, self._for_all(updater)
        try:
            yield
        finally:
            optimizer.rescale_grad = rescale

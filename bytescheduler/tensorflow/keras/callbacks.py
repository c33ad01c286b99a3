"""Callbacks of Keras: equal first values, means of metrics, learning rates of many workers."""

from typing import Any, Callable, Dict, Optional, Union

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow import allgather_object, broadcast_variables, rank, size

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]

_Logs = Optional[Dict[str, Any]]


class BroadcastGlobalVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all workers the variables of one, those of the optimizer included.

    It does so before the first step, or after it where only that step makes the variables.

    Parameters
    ----------
    root_rank : int
        The worker to take them from.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root = root_rank
        self._is_done = False

    def on_train_begin(self, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._is_done = False
        if all(allgather_object(bool(self.model.built))):  # all workers do the same
            optimizer = self.model.optimizer
            if hasattr(optimizer, "build"):
                optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        if not self._is_done:
            self._broadcast()

    def _broadcast(self) -> None:
        state = self.model.optimizer.variables
        broadcast_variables(
            [*self.model.variables, *(state() if callable(state) else state)], self._root
        )
        self._is_done = True


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces the metrics of an epoch by their means over all workers.

    It stands before callbacks that use metrics, such as `ModelCheckpoint`.
    """

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        if logs is None or size() == 1:
            return
        metrics = {name: float(value) for name, value in logs.items()}
        gathered = allgather_object(metrics)
        for worker, theirs in enumerate(gathered):
            for name in sorted(set(theirs) ^ set(metrics)):
                place = "here" if name in metrics else f"on worker {worker}"
                raise UsageError(
                    f"MetricAverageCallback: there is a metric {name!r} {place} only; compile the "
                    "same metrics, and validate, on every worker",
                    5,
                )
        for name in metrics:
            logs[name] = sum(theirs[name] for theirs in gathered) / len(gathered)


class LearningRateScheduleCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Multiplies a learning rate within a range of epochs.

    Parameters
    ----------
    initial_lr : float
        The rate to multiply, which is that of all workers together.
    multiplier : float or callable
        A factor, or a function of the epoch that returns it.
    start_epoch, end_epoch : int
        The first epoch, and the one behind the last; None: to the end.
    staircase : bool
        Whether the rate changes at the begin of an epoch only; else with each batch.
    momentum_correction : bool
        Accepted for scripts of Horovod; the momentum stays as it is.
    steps_per_epoch : int, optional
        For `staircase=False` where Keras does not know it.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        self._initial_lr = initial_lr
        self._factor = multiplier if callable(multiplier) else lambda _: float(multiplier)
        self._start = start_epoch
        self._end = end_epoch
        self._staircase = staircase
        self._steps = steps_per_epoch
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._epoch = epoch
        self._set(float(epoch))

    def on_train_batch_begin(self, batch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        if self._staircase:
            return
        steps = self._steps or self.params.get("steps")
        if not steps:
            raise UsageError(
                f"{type(self).__name__}: how many steps an epoch has is not known; pass "
                "steps_per_epoch",
                5,
            )
        self._set(self._epoch + batch / steps)

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _set(self, epoch: float) -> None:
        if self._start <= epoch and (self._end is None or epoch < self._end):
            self.model.optimizer.learning_rate = self._initial_lr * self._factor(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate with each batch, from that of one worker to that of all.

    Parameters
    ----------
    initial_lr : float
        The rate of all workers together, such as one worker's rate times `size()`.
    warmup_epochs : int
        How long it rises.
    momentum_correction : bool
        Accepted for scripts of Horovod; the momentum stays as it is.
    steps_per_epoch : int, optional
        Where Keras does not know it.
    verbose : int
        Whether worker 0 prints a line when it has risen.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            lambda epoch: (1 + epoch * (size() - 1) / warmup_epochs) / size(),
            end_epoch=warmup_epochs,
            staircase=False,
            steps_per_epoch=steps_per_epoch,
        )
        self._warmup = warmup_epochs
        self._verbose = verbose
        self._has_risen = False  # in this training, which may begin behind the warm-up

    def on_train_begin(self, logs: _Logs = None) -> None:
        """See `Callback`."""
        self._has_risen = False

    def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
        """See `Callback`."""
        super().on_epoch_begin(epoch, logs)
        if epoch < self._warmup or self._has_risen:
            return
        self._has_risen = True
        self.model.optimizer.learning_rate = self._initial_lr
        if self._verbose and rank() == 0:
            print(f"Epoch {epoch + 1}: the learning rate is {self._initial_lr:g}", flush=True)

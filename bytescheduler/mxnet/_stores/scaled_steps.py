"""Steps of a Trainer with AMP's loss scaling: one that overflows changes no weight anywhere."""

import sys
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np

from bytescheduler._compression.params import Compression
from bytescheduler.mxnet._arrays.sparse import dense
from bytescheduler.mxnet._types import Array, Key, Optimizer

__all__ = ["ScaledSteps", "check_unscaled", "is_scaling", "scaling_trainer", "trainer_of"]

_AMP = "mxnet.contrib.amp.amp"  # which only scripts that use it import
_INTEGERS = ("uint8", "int8", "int32", "int64")
_CHECKED = ("float16", "float32", "float64")
# The arrays that one operation of MXNet's engine checks.
_AT_ONCE = 200

_Trainer = Any  # mx.gluon.Trainer
_Check = Callable[[List[Any]], bool]  # `has_overflow` of a loss scaler


def scaling_trainer(optimizer: Optimizer) -> Optional[_Trainer]:
    """Return the Gluon Trainer whose loss AMP scales and whose optimizer this is, or None."""
    trainer = trainer_of(optimizer)
    return None if getattr(trainer, "_amp_loss_scaler", None) is None else trainer


def trainer_of(optimizer: Optimizer) -> Optional[_Trainer]:
    """Return the Gluon Trainer whose optimizer this is, or None."""
    for param in (getattr(optimizer, "param_dict", None) or {}).values():
        trainer = getattr(param, "_trainer", None)
        if trainer is not None and trainer._optimizer is optimizer:
            return trainer
    return None


def is_scaling() -> bool:
    """Return whether AMP scales the loss of some Trainer in this process."""
    return bool(getattr(sys.modules.get(_AMP), "_amp_loss_scale_initialized", False))


def check_unscaled(compression: Compression) -> None:
    """Raise MXNetError if AMP scales a loss and codes cannot say that its gradient overflows."""
    if compression.coding is not None and not compression.says_overflow and is_scaling():
        raise mx.base.MXNetError(
            "AMP's loss scaling does not go with gradient compression: codes cannot say "
            "that a gradient overflows; leave one of them out"
        )


class _Verdict:
    """Stands for all parameters when MXNet's own loss scaler looks for an overflow."""

    def __init__(self, all_finite: bool) -> None:
        self._grad = [mx.nd.array([0.0 if all_finite else float("inf")])]


class ScaledSteps:
    """Holds the updates of a step back until its loss scaler says whether they overflow.

    Gluon's Trainer asks its loss scaler after it has called the store for every parameter.  So a
    store that updates weights has done so by then, and MXNet's scaler sees this worker's gradients
    only.  Here the store decides by arrays that are the same on all workers, such as sums.  So all
    workers skip the same steps, and their loss scales stay the same.
    """

    def __init__(self) -> None:
        self._trainer: Optional[_Trainer] = None  # the one whose updates are held
        self._updates: Dict[Key, Callable[[], None]] = {}
        self._arrays: List[Array] = []
        self._afterwards: List[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Return whether a step is held."""
        return bool(self._updates)

    def holds(self, key: Key) -> bool:
        """Return whether the update of `key` is held."""
        return key in self._updates

    def hold(
        self, trainer: _Trainer, key: Key, arrays: List[Array], update: Callable[[], None]
    ) -> None:
        """Call `update` when the step of `trainer` ends, unless an array of it overflows.

        Until then nothing else may write to the `arrays`.
        """
        if trainer is not self._trainer:
            self._trainer = trainer
            # Gluon refuses a rescale_grad that changes, which servers would not hear of.
            trainer._check_and_rescale_grad = types.MethodType(_rescale, trainer)
        _watch(trainer._amp_loss_scaler, self)
        self._updates[key] = update
        self._arrays.extend(arrays)

    def then(self, action: Callable[[], None]) -> None:
        """Call `action` when the step that is held ends, behind its updates, if there are any."""
        self._afterwards.append(action)

    def settle(self) -> None:
        """End the step that is held, if any; blocks until its arrays are there."""
        if self._updates:
            self._trainer._amp_loss_scaler.has_overflow([])  # type: ignore[union-attr]

    def judge(self, check: _Check) -> bool:
        """End the step that is held and return whether it is skipped, which `check` notes.

        Blocks until all arrays are there.
        """
        updates, self._updates = self._updates, {}
        arrays, self._arrays = self._arrays, []
        afterwards, self._afterwards = self._afterwards, []
        with mx.autograd.pause():
            overflows = check([_Verdict(_all_finite(arrays))])
            for call in afterwards if overflows else (*updates.values(), *afterwards):
                call()
        return overflows


def _rescale(trainer: _Trainer, scale: float) -> None:
    trainer._optimizer.rescale_grad = scale


def _watch(scaler: Any, steps: ScaledSteps) -> None:  # noqa: ANN401 - MXNet has no types
    """Let `scaler` judge what `steps` hold, once there is something."""
    if getattr(scaler, "_bytescheduler_steps", lambda: None)() is steps:
        return
    check: _Check = scaler.has_overflow
    alive = weakref.ref(steps)  # AMP keeps its first scaler for ever

    def has_overflow(params: List[Any]) -> bool:
        held = alive()
        return held.judge(check) if held else check(params)

    scaler.has_overflow = has_overflow
    scaler._bytescheduler_steps = alive


def _all_finite(arrays: List[Array]) -> bool:
    alike: Dict[Tuple[str, str], List[Array]] = {}  # MXNet checks arrays of one dtype and device
    for array in map(dense, arrays):
        name = np.dtype(array.dtype).name
        if name in _INTEGERS:
            continue
        if name not in _CHECKED:
            array, name = array.astype("float32"), "float32"
        alike.setdefault((name, str(array.context)), []).append(array)
    chunks = [
        group[at : at + _AT_ONCE]
        for group in alike.values()
        for at in range(0, len(group), _AT_ONCE)
    ]
    flags = [mx.nd.multi_all_finite(*chunk, num_arrays=len(chunk)) for chunk in chunks]
    return all(bool(flag.asnumpy()) for flag in flags)

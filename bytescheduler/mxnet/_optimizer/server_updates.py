"""Updates of raw memory by an `mx.optimizer`, in a server's process."""

import ctypes
import json
from typing import Dict, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from bytescheduler._process.say import counted
from bytescheduler.mxnet._arrays import sparse
from bytescheduler.mxnet._types import Array, Key, Optimizer

__all__ = ["Updates", "describe_key"]

_Rates = Tuple[Optional[float], Optional[float], Optional[float]]
_DTYPES = {0: np.float32, 1: np.float64, 2: np.float16}
# The attributes that a push's own rates replace.
_RATES = ("lr", "lr_scheduler", "lr_mult", "wd", "wd_mult", "param_dict", "rescale_grad")


def describe_key(key: Key, shape: Tuple[int, ...], *, rows: bool) -> str:
    """Return what `Updates` reads about a key; `rows`: a vector of row flags follows its values."""
    about = {"key": key, "shape": list(shape), **({"rows": True} if rows else {})}
    return json.dumps(about, separators=(",", ":"), ensure_ascii=False)


class _Known(NamedTuple):
    """A key: its name for the optimizer, and arrays to work on."""

    name: Key
    shape: Tuple[int, ...]
    rows: bool
    gradient: Array  # flat, with the flags of rows
    weights: Array  # the same


def _read(key: int, about: str, count: int) -> "Tuple[Key, Tuple[int, ...], bool]":
    if not about:
        return key, (count,), False
    fields = json.loads(about)
    index, shape, rows = fields["key"], tuple(fields["shape"]), bool(fields.get("rows"))
    if type(index) not in (int, str) or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{about}: want a key and a shape")
    extra = shape[0] if rows else 0
    if int(np.prod(shape, dtype=object)) + extra != count:
        raise ValueError(f"{about}: it has {counted(count, 'element')}")
    return index, shape or (count,), rows


def _copy_in(array: Array, address: int) -> None:
    if array.size:
        arguments = array.handle, ctypes.c_void_p(address), ctypes.c_size_t(array.size)
        check_call(_LIB.MXNDArraySyncCopyFromCPU(*arguments))


def _copy_out(array: Array, address: int) -> None:
    if array.size:
        arguments = array.handle, ctypes.c_void_p(address), ctypes.c_size_t(array.size)
        check_call(_LIB.MXNDArraySyncCopyToCPU(*arguments))


class Updates:
    """An optimizer with its states, for any number of keys.

    Not thread-safe.

    Parameters
    ----------
    optimizer : Optimizer
        Owned from now on.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._updater = mx.optimizer.get_updater(optimizer)
        self._own = {name: getattr(optimizer, name) for name in _RATES}
        self._keys: Dict[int, _Known] = {}

    def update(
        self,
        key: int,
        about: str,
        dtype: int,
        memory: Tuple[int, int, int],
        rates: _Rates,
    ) -> None:
        """Update weights in place.  Raises whatever the optimizer raises.

        Parameters
        ----------
        key : int
            The server's name of the key.
        about : str
            From `describe_key`; empty for a flat array whose name is `key`.
        dtype : int
            MXNet's code.
        memory : (int, int, int)
            Addresses of gradient and weights, and the bytes of each.
        rates : (float, float, float), each optional
            Learning rate, weight decay and rescale_grad; the optimizer's own where None.
        """
        gradient, weights, size_bytes = memory
        if size_bytes == 0:
            return
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = self._begin(key, about, dtype, size_bytes)
        _copy_in(state.gradient, gradient)
        _copy_in(state.weights, weights)
        self._use(rates)
        with mx.autograd.pause():
            self._update_rows(state) if state.rows else self._update_all(state)
        _copy_out(state.weights, weights)

    def _begin(self, key: int, about: str, dtype: int, size_bytes: int) -> _Known:
        kind = np.dtype(_DTYPES[dtype])
        count = size_bytes // kind.itemsize
        index, shape, rows = _read(key, about, count)
        arrays = [mx.nd.empty((count,), dtype=kind) for _ in range(2)]
        return _Known(index, shape, rows, *arrays)

    def _use(self, rates: _Rates) -> None:
        """Let the optimizer count this update as the push says."""
        learning_rate, weight_decay, rescale_grad = rates
        now = dict(self._own)
        if learning_rate is not None:
            now.update(lr=learning_rate, lr_scheduler=None, lr_mult={}, param_dict={})
        if weight_decay is not None:
            now.update(wd=weight_decay, wd_mult={}, param_dict={})
        if rescale_grad is not None:
            now.update(rescale_grad=rescale_grad)
        self._optimizer.__dict__.update(now)

    def _update_all(self, state: _Known) -> None:
        weights = state.weights.reshape(state.shape)
        self._updater(state.name, state.gradient.reshape(state.shape), weights)

    def _update_rows(self, state: _Known) -> None:
        """Update the rows that were pushed, and what a lazy optimizer keeps for them."""
        count = state.weights.size - state.shape[0]
        values = state.gradient[:count].reshape(state.shape)
        gradient = sparse.with_rows(values, state.gradient[count:])
        weights = sparse.with_all_rows(state.weights[:count].reshape(state.shape))
        self._updater(state.name, gradient, weights)
        state.weights[:count] = sparse.dense(weights).reshape((count,))

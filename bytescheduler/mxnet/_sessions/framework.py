"""MXNet as a session sees it: its error, and its engine when a job has failed."""

import atexit
import contextlib
import ctypes
import os
import weakref
from typing import Optional

import mxnet as mx
from mxnet.base import _LIB, check_call

from bytescheduler._native import MXNetStore
from bytescheduler._process.ending import at_end
from bytescheduler.errors import ConfigError
from bytescheduler.mxnet._types import Handle, Store

__all__ = ["MXNet", "StockMXNet", "abandon", "give_up", "give_up_at_end", "let_go"]

_KEPT = "_bytescheduler_keeps_it"  # an attribute of stock stores that must not be destroyed


class _ClosedHandle:
    """The handle of a stock store that `give_up` has destroyed: MXNet's functions check none."""

    @property
    def _as_parameter_(self) -> Handle:
        raise mx.base.MXNetError("the store was closed")


def give_up(inner: Store) -> None:
    """Destroy the stock store, however many references to it there are.  Blocks as that does."""
    handle = inner.handle
    if isinstance(handle, _ClosedHandle):
        return
    _keep(inner)  # its own destructor would do it again
    inner.handle = _ClosedHandle()
    check_call(_LIB.MXKVStoreFree(handle))
    handle.value = None  # other objects have it too


def give_up_at_end(inner: Store) -> None:
    """Destroy a dist store of MXNet when the script is over, unless it is gone or kept by then.

    MXNet aborts where one is left after the interpreter's own end.  A daemon thread can keep it, or
    any class that MXNet has registered.
    """
    remembered, process = weakref.ref(inner), os.getpid()

    def end() -> None:
        store = remembered()
        if store is not None and os.getpid() == process and not getattr(store, _KEPT, False):
            with contextlib.suppress(mx.base.MXNetError):
                give_up(store)

    at_end(end)


def let_go(inner: Store) -> None:
    """Let the stock store end without the others, which may not come any more."""
    if isinstance(inner.handle, _ClosedHandle):
        return
    _LIB.MXKVStoreSetBarrierBeforeExit(inner.handle, ctypes.c_int(0))


def _keep(inner: Optional[Store]) -> None:
    """Keep the stock store from being destroyed: its destructor waits for threads and barriers."""
    setattr(inner, _KEPT, True)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inner))


def abandon(inner: Optional[Store]) -> None:
    """Let the process end though operations of `inner` never do, and MXNet waits for them."""
    _keep(inner)
    atexit.unregister(mx.base._notify_shutdown)
    MXNetStore.exit_at_once()


class ConfigMXNetError(ConfigError, mx.base.MXNetError):  # type: ignore[misc]  # MXNet has no types
    """A setting is wrong, here or on another worker, and the job failed by it."""


class MXNet:
    """See `Framework`.

    Parameters
    ----------
    inner : KVStore, optional
        The stock store beside the worker; its destructor does not wait once the job failed.
    """

    error = mx.base.MXNetError
    config_error = ConfigMXNetError
    owner = "store"

    def __init__(self, inner: Optional[Store] = None) -> None:
        self._inner = inner
        if inner is not None:
            give_up_at_end(inner)

    def abandon(self) -> None:
        """See `Framework`."""
        # Else MXNet raises errors that were never waited for in a destructor, and aborts.
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        if self._inner is not None:
            let_go(self._inner)

    def release(self) -> None:
        """See `Framework`.

        The stock store lives on until the script is over: its destructor waits for the others'.
        """

    def forget(self) -> None:
        """See `Framework`."""
        if self._inner is not None:
            _keep(self._inner)
            # MXNet's own objects have threads of the parent, and abort in their destructors.
            MXNetStore.exit_at_once()


class StockMXNet(MXNet):
    """See `Framework`; the stock store itself carries the bytes."""

    def abandon(self) -> None:
        """See `Framework`."""
        # Operations that the store queued in MXNet's engine may never end, nor a wait for them.
        abandon(self._inner)

    def release(self) -> None:
        """See `Framework`.

        Only the destructor of the stock store tells MXNet's scheduler node that this worker leaves.
        """
        if self._inner is not None:
            give_up(self._inner)

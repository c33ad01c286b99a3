"""MXNet as a session sees it: its error, and its engine when a job has failed."""

import atexit
import contextlib
import ctypes
from typing import Optional

import mxnet as mx
from mxnet.base import _LIB

from bytescheduler._native import MXNetStore
from bytescheduler.mxnet._types import Store

__all__ = ["MXNet", "StockMXNet", "abandon", "let_go"]


def let_go(inner: Store) -> None:
    """Let the stock store end without the others, which may not come any more."""
    _LIB.MXKVStoreSetBarrierBeforeExit(inner.handle, ctypes.c_int(0))


def _keep(inner: Optional[Store]) -> None:
    """Keep the stock store from being destroyed: its destructor waits for threads and barriers."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inner))


def abandon(inner: Optional[Store]) -> None:
    """Let the process end though operations of `inner` never do, and MXNet waits for them."""
    _keep(inner)
    atexit.unregister(mx.base._notify_shutdown)
    MXNetStore.exit_at_once()


class MXNet:
    """See `Framework`.

    Parameters
    ----------
    inner : KVStore, optional
        The stock store beside the worker; its destructor does not wait once the job failed.
    """

    error = mx.base.MXNetError
    owner = "store"

    def __init__(self, inner: Optional[Store] = None) -> None:
        self._inner = inner

    def abandon(self) -> None:
        """See `Framework`."""
        # Else MXNet raises errors that were never waited for in a destructor, and aborts.
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        if self._inner is not None:
            let_go(self._inner)

    def forget(self) -> None:
        """See `Framework`."""
        if self._inner is not None:
            _keep(self._inner)


class StockMXNet(MXNet):
    """See `Framework`; the stock store itself carries the bytes."""

    def abandon(self) -> None:
        """See `Framework`."""
        # Operations that the store queued in MXNet's engine may never end, nor a wait for them.
        abandon(self._inner)

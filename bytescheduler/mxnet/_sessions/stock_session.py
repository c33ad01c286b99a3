"""A session on stock servers: the wrapped store carries the bytes."""

import queue
import threading
import time
from typing import Callable, Iterable, List, Mapping, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from bytescheduler._native import Coding, MXNetPlugin, Worker
from bytescheduler._session.sums import Judge, Numbers, Sum
from bytescheduler.errors import Timeout
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._functions import engine_blocks, open_kvstore, open_plugin
from bytescheduler.mxnet._sessions.compressed_keys import CompressedKeys, threshold_for_stock
from bytescheduler.mxnet._sessions.framework import StockMXNet, abandon
from bytescheduler.mxnet._sessions.tensor_session import Rates, TensorSession
from bytescheduler.mxnet._types import Store

# The dtypes that stock servers add up; an integer makes them abort.
_SUMMED = ("float32", "float64", "float16")

_SAY_EVERY_S = 5.0


def open_stock_session(
    inner: Store, timeout_s: float, say: Callable[[str], None]
) -> "StockSession":
    """Return a session over `inner`, a synchronous dist store of MXNet; blocks until all are there.

    Parameters
    ----------
    inner : KVStore
        The session alone uses it from now on.
    timeout_s : float
        How long to wait for the others.
    say : callable
        Prints a line about what it waits for, and about how the bytes travel.

    Raises
    ------
    Timeout
        The others did not come; the process can then end, which MXNet's own store would not let it.
    """
    store = open_kvstore(inner)
    worker = Worker.open_kvstore_backend(store, inner.rank, blocks=engine_blocks())
    try:
        # Rank 0's first values are in the store; from here on the others may ask for them.
        _meet(inner, timeout_s, say)
        session = StockSession(worker, open_plugin(worker), inner, say)
    except BaseException:
        worker.close(drain_ms=0)
        raise
    session.show_metrics()
    return session


def _meet(inner: Store, timeout_s: float, say: Callable[[str], None]) -> None:
    """Pass a barrier of the stock store, which itself would wait for ever."""
    ended: queue.SimpleQueue[Optional[mx.base.MXNetError]] = queue.SimpleQueue()

    def barrier() -> None:
        try:
            check_call(_LIB.MXKVStoreBarrier(inner.handle))
            ended.put(None)
        except mx.base.MXNetError as error:
            ended.put(error)

    # Nothing can end this thread if the others never come, nor the store that it is in.
    threading.Thread(target=barrier, name="bs-barrier", daemon=True).start()
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            error = ended.get(timeout=max(0.0, min(left, _SAY_EVERY_S)))
        except queue.Empty:
            if left > _SAY_EVERY_S:
                say("waiting for every worker to wrap its dist store in a ScheduledKVS")
                continue
            abandon(inner)
            raise Timeout(
                f"not every worker has wrapped its dist store after {timeout_s:g} s "
                "(BYTESCHEDULER_TIMEOUT): every worker must make a ScheduledKVS of it",
                2,
            ) from None
        if error is not None:
            raise error
        return


class StockSession(TensorSession):
    """A `TensorSession` on the kvstore back end: each partition has a key of the stock store.

    The store is used on the engine's thread, and no other code may push to it or pull from it.  The
    loss of a peer shows only as silence, and the stock store's own operations then never end.  So
    after a failure MXNet's engine is not waited for, and the process ends without its destructors.

    From `compress` on the store carries whole tensors, unscheduled, on the calling thread.
    """

    leaves_small_plain = False
    compares_codings = False  # rank 0's holds for all

    def __init__(
        self,
        worker: Worker,
        plugin: MXNetPlugin,
        inner: Optional[Store] = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(worker, plugin, StockMXNet(inner))
        self._inner = inner
        self._say = say
        self._compressed: Optional[CompressedKeys] = None

    @property
    def counts_rows(self) -> bool:  # type: ignore[override]
        """True until pushes are compressed: a stock store compresses all or none."""
        return self._compressed is None

    def broadcast(
        self,
        tensors: Iterable[Tensor],
        *,
        asynchronous: bool = False,
        coding: Optional[Coding] = None,
    ) -> None:
        """See `TensorSession`.  All workers must name the same tensors in the same order."""
        tensors = list(tensors)
        for tensor in tensors:
            if tensor.dtype.name not in _SUMMED:
                raise mx.base.MXNetError(
                    f"key {tensor.key!r}: stock servers cannot sum {tensor.dtype.name}, only "
                    f"{', '.join(_SUMMED)}: cast it, or start the job with bslaunch"
                )
        if self._compressed is not None:
            self._compressed.declare(tensors)
            return
        if self.rank != 0:
            self.barrier()
        super().broadcast(tensors, asynchronous=asynchronous)
        if self.rank == 0:
            self.barrier()

    def compress(self, params: Mapping[str, object], coding: Coding, tensors: List[Tensor]) -> None:
        """See `TensorSession`.  Blocks until all workers do so, if there are `tensors`."""
        threshold = threshold_for_stock(coding)
        compressed = self._compressed or CompressedKeys(self._inner)
        first = self._compressed is None
        if first:
            compressed.check_room(tensors)
        # Operations under way must neither share the store nor be compressed: our pushes and notes,
        # and those of MXNet's engine, which waits for no peer.
        self._plugin.drain()
        self._watched.look(wait=True)
        self.check()
        if first and tensors:
            super().barrier()  # its deadline names the missing workers
        mx.nd.waitall()
        is_mxnets = "type" in params
        compressed.compress(
            params if is_mxnets else {"type": "2bit", "threshold": threshold}, threshold
        )
        if first:
            self._compressed = compressed
            compressed.declare(tensors)
            assert self._inner is not None
            self._say(
                f"MXNet's {self._inner.type} store carries the bytes from here on, unscheduled: "
                "stock servers take compressed tensors whole only"
            )
        elif tensors:
            self.barrier()

    def push_pull(
        self,
        tensor: Tensor,
        priority: int,
        coding: Optional[Coding] = None,
        rates: Optional[Rates] = None,
    ) -> None:
        """See `TensorSession`."""
        if self._compressed is None:
            super().push_pull(tensor, priority, coding, rates)
        else:
            self._compressed.push_pull(tensor, priority)

    def _start(self, key: int, numbers: Numbers, priority: int) -> Tuple[Sum, Numbers]:
        if self._compressed is None:
            return super()._start(key, numbers, priority)
        self._watched.look(wait=True)  # soon over: many rounds lie between
        total = np.zeros_like(numbers)
        return self._compressed.start_sum(key, numbers, total), total

    def watch(self, key: int, numbers: Numbers, judge: Judge) -> None:
        """See `TensorSession`.  Blocks where MXNet's engine does."""
        super().watch(key, numbers, judge)
        if engine_blocks():
            # One operation at a time is under way: workers that had two would have to begin them
            # in one order, or wait for each other for ever.
            self._watched.look(wait=True)

    def barrier(self) -> None:
        """See `TensorSession`."""
        if self._compressed is None:
            super().barrier()
        else:
            self._compressed.barrier()

    def _drain(self, drain_s: Optional[float], early: str = "") -> None:
        if self._compressed is not None and drain_s is None:
            mx.nd.waitall()
        super()._drain(drain_s, early)

    def drop(self) -> None:
        """Leave: no other session can use the wrapped store's place.  Blocks."""
        self.close()

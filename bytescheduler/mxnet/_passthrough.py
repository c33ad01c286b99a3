"""The back end that hands every call to the wrapped store, unchanged."""

from typing import Mapping, Optional

import mxnet as mx

from bytescheduler.mxnet._types import Arrays, Handle, Keys, Optimizer, RowIds, Store, Updater


class PassThrough:
    """See `Backend`.

    Parameters
    ----------
    inner : KVStoreBase
        Any store of MXNet.
    """

    def __init__(self, inner: Store) -> None:
        self._store = inner
        self._closed = False

    @property
    def _inner(self) -> Store:
        if self._closed:
            raise mx.base.MXNetError("the store was closed")
        return self._store

    @property
    def handle(self) -> Handle:
        return self._store.handle

    @property
    def updater(self) -> Updater:
        return self._inner._updater

    @property
    def is_p3(self) -> bool:
        return bool(self._inner._is_p3)

    @property
    def type(self) -> str:
        return str(self._store.type)

    @property
    def rank(self) -> int:
        return int(self._inner.rank)

    @property
    def num_workers(self) -> int:
        return int(self._inner.num_workers)

    def init(self, key: Keys, value: Arrays) -> None:
        self._inner.init(key, value)

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self._inner.broadcast(key, value, out, priority)

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        self._inner.push(key, value, priority)

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        self._inner.pull(key, out, priority, ignore_sparse)

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self._inner.pushpull(key, value, out, priority)

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        self._inner.row_sparse_pull(key, out, priority, row_ids)

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        self._inner.set_gradient_compression(params)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self._inner.set_optimizer(optimizer)

    def set_updater(self, updater: Updater) -> None:
        self._inner._set_updater(updater)

    def is_capable(self, capability: str) -> bool:
        return bool(self._inner.is_capable(capability))

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        self._inner.save_optimizer_states(fname, dump_optimizer)

    def load_optimizer_states(self, fname: str) -> None:
        self._inner.load_optimizer_states(fname)

    def barrier(self) -> None:
        self._inner._barrier()

    def send_command_to_servers(self, head: int, body: str) -> None:
        self._inner._send_command_to_servers(head, body)

    def close(self, drain_s: Optional[float]) -> None:
        self._closed = True  # the wrapped store may live on; it is not ours

    def drop(self) -> None:
        self._closed = True

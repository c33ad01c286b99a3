"""The back end that hands every call to the wrapped store, unchanged."""

import functools
from typing import Callable, Mapping, Optional

import mxnet as mx
from mxnet.base import KVStoreHandle

from bytescheduler.mxnet._stores.arguments import group
from bytescheduler.mxnet._stores.scaled_steps import ScaledSteps, scaling_trainer
from bytescheduler.mxnet._types import Arrays, Handle, Keys, Optimizer, RowIds, Store, Updater


def _nothing() -> None:
    pass


class PassThrough:
    """See `Backend`.

    Plug-ins need only have the methods of `KVStoreBase`.  Callers of every store then read the
    values of a local store; a missing method is an AttributeError, as without us.

    Parameters
    ----------
    inner : KVStoreBase
        Any store of MXNet.
    """

    def __init__(self, inner: Store) -> None:
        self._store = inner
        self._closed = False
        self._optimizer: Optimizer = None
        self._scaled = ScaledSteps()

    @property
    def _inner(self) -> Store:
        if self._closed:
            raise mx.base.MXNetError("the store was closed")
        return self._store

    @property
    def handle(self) -> Handle:
        return getattr(self._store, "handle", None) or KVStoreHandle()

    @property
    def updater(self) -> Updater:
        return getattr(self._inner, "_updater", None)

    @property
    def is_p3(self) -> bool:
        return bool(getattr(self._inner, "_is_p3", False))

    @property
    def updates_here(self) -> bool:
        return "dist" not in self.type

    @property
    def type(self) -> str:
        return str(self._store.type)

    @property
    def rank(self) -> int:
        return int(self._inner.rank)

    @property
    def num_workers(self) -> int:
        return int(self._inner.num_workers)

    def agree_on_rescaling(self) -> None:
        pass

    def follow(self, optimizer: Optimizer) -> None:
        pass

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        raise mx.base.MXNetError(
            f"nothing of a {self.type} store travels in partitions that could change; "
            "start the job with bslaunch"
        )

    def init(self, key: Keys, value: Arrays) -> None:
        self._inner.init(key, value)

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self._inner.broadcast(key, value, out, priority)

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        inner = self._inner
        if not self._held(key, value, functools.partial(inner.push, key, value, priority)):
            inner.push(key, value, priority)

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        pull = functools.partial(self._inner.pull, key, out, priority, ignore_sparse)
        if self._scaled:
            self._scaled.then(pull)
        else:
            pull()

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        inner = self._inner
        if not self._held(key, value, functools.partial(inner.pushpull, key, value, out, priority)):
            inner.pushpull(key, value, out, priority)

    def _held(self, key: Keys, value: Arrays, call: Callable[[], None]) -> bool:
        """Return whether `call`, which updates by `value`, waits for the end of AMP's step."""
        trainer = None if self._optimizer is None else scaling_trainer(self._optimizer)
        if trainer is None:
            return False
        if "dist" in self.type:
            raise mx.base.MXNetError(
                f"the servers of MXNet's {self.type} store update at each push, so that a step "
                "whose gradients overflow cannot be skipped: give the Trainer "
                "update_on_kvstore=False, use dist_sync, or leave out AMP's loss scaling"
            )
        groups = group(key, value)
        if any(map(self._scaled.holds, groups)):
            self._scaled.settle()
        for name, arrays in groups.items():
            self._scaled.hold(trainer, name, arrays, call)
            call = _nothing  # a call may have several keys
        return True

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        self._inner.row_sparse_pull(key, out, priority, row_ids)

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        self._inner.set_gradient_compression(params)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self._inner.set_optimizer(optimizer)
        self._optimizer = optimizer

    def set_updater(self, updater: Updater) -> None:
        self._inner._set_updater(updater)

    def is_capable(self, capability: str) -> bool:
        return bool(self._inner.is_capable(capability))

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        self._inner.save_optimizer_states(fname, dump_optimizer)

    def load_optimizer_states(self, fname: str) -> None:
        self._inner.load_optimizer_states(fname)

    def barrier(self) -> None:
        inner = self._inner
        if hasattr(inner, "_barrier"):
            inner._barrier()
        elif inner.num_workers > 1:
            raise mx.base.MXNetError(f"MXNet's {inner.type} store has no barrier")

    def send_command_to_servers(self, head: int, body: str) -> None:
        if hasattr(self._inner, "_send_command_to_servers"):
            self._inner._send_command_to_servers(head, body)

    def close(self, drain_s: Optional[float]) -> None:
        self._closed = True  # the wrapped store may live on; it is not ours

    def drop(self) -> None:
        self._closed = True

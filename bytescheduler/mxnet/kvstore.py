"""ScheduledKVS: a KVStore of MXNet that schedules communication, over one of several back ends."""

import inspect
from types import TracebackType
from typing import Mapping, Optional, Type

import mxnet as mx
from mxnet.kvstore import KVStore, KVStoreBase

from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler._started import ready
from bytescheduler.mxnet._choice.dist_names import take_names
from bytescheduler.mxnet._choice.opening import open_backend, passes_on
from bytescheduler.mxnet._stores.backend import Backend
from bytescheduler.mxnet._types import Arrays, Handle, Keys, Optimizer, RowIds, Store, Updater

__all__ = ["ScheduledKVS", "ScheduledKVStore"]


def _class_over(kind: "Type[ScheduledKVS]", wrapped: object) -> "Type[ScheduledKVS]":
    """Return `kind`, or a class like it that answers as the class of `wrapped`, without a store."""
    capable = inspect.getattr_static(wrapped, "is_capable", None)
    answers_itself = kind.is_capable is not ScheduledKVS.is_capable  # a derived class has its own
    if answers_itself or not isinstance(capable, staticmethod):
        return kind
    same = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
    return type(kind.__name__, (kind,), {**same, "is_capable": capable})


@KVStoreBase.register
class ScheduledKVS(KVStore):  # type: ignore[misc]  # MXNet has no types
    """A KVStore whose urgent tensors go first.

    Use it like the store it wraps, or as ``mx.kv.create("bytescheduler")``; a ``with`` block closes
    it.  A store that is dropped without being closed keeps this process's place in the job, for
    stores to come, until the process ends; on stock servers it is closed, as if by `close`.  All
    methods must be called on one thread at a time.  A priority is an int, of any size.  Errors of
    later work arrive in MXNet as exceptions on the arrays that were pulled, and at the next call
    here.

    These calls block:

    - the constructor, ``init``, ``broadcast``, ``barrier`` and `close`;
    - the first ``push`` or ``pushpull`` after an optimizer with ``multi_precision`` was set;
    - the first one of row_sparse arrays to a key that was initialised dense;
    - ``row_sparse_pull``, for its row numbers;
    - messages to servers: ``set_optimizer`` of a ``dist_async`` store, and
      ``_send_command_to_servers``;
    - ``set_gradient_compression`` behind ``init``, until all workers call it;
    - with compression on stock servers the 2nd, 4th, 8th, ... push, which may wait for the slowest
      worker.

    Parameters
    ----------
    kvs : KVStoreBase, optional
        The store to wrap.  Its type and, if it is a ``dist`` store of MXNet, its rank are kept.  A
        store that is scheduled already is returned as it is.

    Raises
    ------
    TypeError
        `kvs` is not a store.
    ConfigError
        A setting is missing or wrong.
    Timeout, PeerLost
        The job did not come together.
    MXNetError
        The back end cannot do what the wrapped store's type promises.
    """

    _inner: Optional[Store]  # kept alive for as long as this lives
    _backend: Backend

    def __new__(cls, *args: object, **kwargs: object) -> "ScheduledKVS":
        """Make a store whose class answers for itself if that of the wrapped store does.

        A store that is scheduled already is returned as it is.
        """
        stores = (
            argument for argument in (*args, *kwargs.values()) if isinstance(argument, KVStoreBase)
        )
        wrapped = next(stores, None)
        if isinstance(wrapped, ScheduledKVS):
            return wrapped
        if wrapped is None:
            return super().__new__(cls)  # type: ignore[no-any-return]
        kind = _class_over(cls, wrapped) if passes_on(wrapped, Settings.read()) else cls
        return super().__new__(kind)  # type: ignore[no-any-return]

    # Not KVStore.__init__: it would own, and free, a handle that belongs to the wrapped store.
    def __init__(self, kvs: Optional[KVStoreBase] = None) -> None:
        if kvs is self:
            return
        if kvs is not None and not isinstance(kvs, KVStoreBase):
            raise TypeError(f"want a store such as mx.kv.create('dist_sync'), got {type(kvs)}")
        self._inner = kvs
        ready.tell_register()
        try:
            self._inner, self._backend = open_backend(kvs, Settings.read())
        finally:
            ready.tell()  # from here on this process speaks for itself

    def __del__(self) -> None:
        """Give up the store, not this process's place in the job; print what failed."""
        backend = getattr(self, "_backend", None)
        if backend is None:
            return
        try:
            backend.drop()
        except mx.base.MXNetError as error:
            say(f"bytescheduler: {error}")

    def __enter__(self) -> "ScheduledKVS":
        """Return the store."""
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Close; after an exception without waiting for what was pushed."""
        self.close(drain=None if error is None else 0.0)

    def close(self, *, drain: Optional[float] = None) -> None:
        """Finish what was pushed and leave the job.  Blocks; a second call does nothing.

        Parameters
        ----------
        drain : float, optional
            Seconds for what was pushed; what is unfinished then fails, and with it the job.  None
            waits as long as the engine's own deadlines allow.

        Raises
        ------
        MXNetError
            The job failed, and no call has said so yet.
        """
        self._backend.close(drain)

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        """Change partitions and credit of all workers while they train; rank 0 calls it.

        Each key changes over behind its next push, in the same round on every worker; values do not
        depend on it.  Later keys have the new partitions at once.

        Parameters
        ----------
        partition_bytes : int
            As BYTESCHEDULER_PARTITION: 4 KiB to 1 GiB.
        credit_bytes : int
            As BYTESCHEDULER_CREDIT: 1 B to 64 GiB.

        Raises
        ------
        ConfigError
            A number is out of range.
        MXNetError
            This is not rank 0, or the store has no partitions that could change: it is asynchronous
            or on stock servers.
        """
        self._backend.retune(partition_bytes, credit_bytes)

    # -- MXNet's surface; see mxnet.kvstore.KVStore for each --------------------------------------

    @property
    def handle(self) -> Handle:
        """Handle of the wrapped store, or a null one."""
        return self._backend.handle

    @property
    def _updater(self) -> Updater:
        return self._backend.updater

    @property
    def _is_p3(self) -> bool:
        return self._backend.is_p3

    @property
    def type(self) -> str:
        """Type of the wrapped store; "dist_sync" if there is none."""
        return self._backend.type

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""
        return self._backend.rank

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self._backend.num_workers

    def init(self, key: Keys, value: Arrays) -> None:
        """Give keys rank 0's values, on every worker; blocks."""
        self._backend.init(key, value)

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int = 0) -> None:
        """Give keys rank 0's values, on every worker, and pull them; blocks."""
        self._backend.broadcast(key, value, out, priority)

    def push(self, key: Keys, value: Arrays, priority: int = 0) -> None:
        """Add values to the current round of their keys."""
        self._backend.push(key, value, priority)

    def pull(
        self, key: Keys, out: Arrays = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy the stored values into `out`, once the last push is through."""
        self._backend.pull(key, out, priority, ignore_sparse)

    def pushpull(self, key: Keys, value: Arrays, out: Arrays = None, priority: int = 0) -> None:
        """Push, then pull into `out`, or in place."""
        self._backend.pushpull(key, value, out, priority)

    def row_sparse_pull(
        self, key: Keys, out: Arrays = None, priority: int = 0, row_ids: RowIds = None
    ) -> None:
        """Copy some rows into `out`."""
        self._backend.row_sparse_pull(key, out, priority, row_ids)

    def set_gradient_compression(self, compression_params: Mapping[str, object]) -> None:
        """Compress what is pushed; on stock servers the wrapped store then works unscheduled.

        There it blocks until all workers call it, if there are keys.
        """
        self._backend.set_gradient_compression(compression_params)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update weights with `optimizer` from now on; a second call starts its state afresh."""
        self._backend.set_optimizer(optimizer)

    def _set_updater(self, updater: Updater) -> None:
        self._backend.set_updater(updater)

    def is_capable(self, capability: str) -> bool:
        """Return whether the store can do something, such as "optimizer"."""
        return self._backend.is_capable(capability)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        self._backend.save_optimizer_states(fname, dump_optimizer)

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        self._backend.load_optimizer_states(fname)

    def barrier(self) -> None:
        """Wait until every worker called it."""
        self._backend.barrier()

    def _barrier(self) -> None:
        self._backend.barrier()

    def _send_command_to_servers(self, head: int, body: str) -> None:
        self._backend.send_command_to_servers(head, body)


# The published name, and what mx.kv.create("bytescheduler") looks for.
ScheduledKVStore = ScheduledKVS


@KVStoreBase.register
class ByteScheduler(ScheduledKVS):
    """The store of ``mx.kv.create("bytescheduler")``: a ScheduledKVS that wraps nothing."""


take_names(ready.tell_wait, ready.tell)

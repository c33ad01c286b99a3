"""ScheduledKVS: a KVStore of MXNet that schedules communication, over one of several back ends."""

import inspect
from types import TracebackType
from typing import Dict, Mapping, Optional, Tuple, Type

import mxnet as mx
from mxnet.kvstore import KVStore, KVStoreBase

from bytescheduler._launch import ready
from bytescheduler._native import Worker, check_settings, values
from bytescheduler._process.say import say
from bytescheduler.config import seconds
from bytescheduler.errors import ConfigError
from bytescheduler.mxnet._functions import open_plugin
from bytescheduler.mxnet._stores.async_store import AsyncStore
from bytescheduler.mxnet._stores.backend import Backend
from bytescheduler.mxnet._stores.link import Link, let_go
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet._stores.passthrough import PassThrough
from bytescheduler.mxnet._stores.store_link import StoreLink, open_store_link
from bytescheduler.mxnet._types import Arrays, Handle, Keys, Optimizer, RowIds, Store, Updater

__all__ = ["ScheduledKVS", "ScheduledKVStore"]

# Stands in for a job where there is none, so that the other settings can be checked.
_NO_JOB = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "1",
}


def _settings() -> Dict[str, str]:
    return {row.name: row.value for row in values()}


def _say(settings: Dict[str, str], sentence: str) -> None:
    """Print one line beside the engine's own, unless its level is above."""
    if settings.get("BYTESCHEDULER_LOG_LEVEL") in ("info", "debug"):
        say(f"bytescheduler: {sentence}")


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _open_link(stock: Optional[Store], job: str) -> Link:
    """Join the job, or share the place that another store of this process has in it."""
    check_settings()
    shared = Link.share()
    if shared is not None:
        if stock is not None and stock.rank != shared.rank:
            shared.close(None)
            raise mx.base.MXNetError(
                f"this process is worker {shared.rank} already, but the stock store has rank "
                f"{stock.rank}: wrap the dist store first, other stores after it"
            )
        return shared
    Link.check_not_left(job)
    worker = Worker.open(wanted_rank=-1 if stock is None else stock.rank)
    try:
        link = Link(worker, open_plugin(worker, in_place=True), stock, job)
    except BaseException:
        worker.close(drain_ms=0)
        raise
    link.show_metrics()
    link.offer()
    return link


def _open_native(inner: Optional[Store], settings: Dict[str, str]) -> Backend:
    name = "" if inner is None else str(inner.type)
    num_workers = settings.get("DMLC_NUM_WORKER", "")
    if name and "dist" not in name and num_workers not in ("", "1"):
        raise mx.base.MXNetError(
            f"a {name} store in a job of {num_workers} workers: its type tells MXNet that there is "
            'one worker; use mx.kv.create("dist_sync")'
        )
    stock = inner if isinstance(inner, KVStore) and "dist" in name else None
    root = [settings.get(f"DMLC_PS_ROOT_{part}", "") for part in ("URI", "PORT")]
    try:
        link = _open_link(stock, ":".join(root) if all(root) else "")
    except BaseException:
        if stock is not None:
            let_go(stock)
        raise
    _say(
        settings,
        f"native back end carries the bytes ({_many(link.num_workers, 'worker')}, "
        f"{_many(link.num_servers, 'server')}; because BYTESCHEDULER_BACKEND=native)",
    )
    if "async" in name:
        _say_untuned(settings, "tensors of an asynchronous store are not cut anew")
        return AsyncStore(link, inner)
    link.tune()
    return NativeStore(link, inner)


def _say_untuned(settings: Dict[str, str], why: str) -> None:
    wanted = settings["BYTESCHEDULER_TUNING"]
    asked = any(r.name == "BYTESCHEDULER_TUNING" and r.origin != "default" for r in values())
    if asked and wanted != "off":
        _say(settings, f"BYTESCHEDULER_TUNING={wanted} changes nothing: {why}")


def _is_alone(inner: Optional[Store], settings: Dict[str, str]) -> bool:
    """Return whether `inner` is somebody else's store in a job whose one worker needs no other."""
    foreign = inner is not None and not isinstance(inner, KVStore) and "dist" not in str(inner.type)
    return foreign and settings.get("DMLC_NUM_WORKER", "") in ("", "1")


def _why_unscheduled(inner: Store, settings: Dict[str, str]) -> Optional[str]:
    """Return why the store's own operations are used as they are; None if we schedule them."""
    if settings.get("BYTESCHEDULER_BACKEND") == "passthrough":
        return "because BYTESCHEDULER_BACKEND=passthrough"
    name = str(inner.type)
    if not isinstance(inner, KVStore) or "dist" not in name:
        return "nothing of it travels in pieces, as it is no dist store of MXNet's"
    if "async" in name:
        return "its servers update at each push, so its tensors cannot be cut"
    if inner._is_p3:
        return "P3 cuts and orders its tensors itself"
    return None


def _check_no_secret(name: str, settings: Dict[str, str]) -> None:
    """Refuse to carry in the clear what its user believes to be encrypted."""
    if settings.get("BYTESCHEDULER_SECRET_FILE"):
        raise ConfigError(
            f"BYTESCHEDULER_SECRET_FILE is set, but MXNet's {name} store and its servers encrypt "
            "nothing: start the job by bslaunch, or with BYTESCHEDULER_BACKEND=native and servers "
            "of ours (python -m bytescheduler.server), or unset the secret"
        )


def _open_wrapped(inner: Optional[Store], settings: Dict[str, str]) -> Tuple[Store, Backend]:
    check_settings(_NO_JOB)
    in_job = settings.get("DMLC_ROLE") == "worker"
    if isinstance(inner, KVStore) and "dist" in str(inner.type):
        _check_no_secret(inner.type, settings)
    elif inner is None and in_job:
        _check_no_secret("dist_sync", settings)
    if inner is None:
        if in_job:
            StoreLink.require_none()  # a second stock store of a process would wait for ever
        inner = mx.kv.create("dist_sync" if in_job else "local")
    why = _why_unscheduled(inner, settings)
    if why is not None:
        _say(settings, f"MXNet's {inner.type} store carries the bytes, unscheduled: {why}")
        _say_untuned(settings, "nothing travels in pieces")
        return inner, PassThrough(inner)
    check_settings()
    StoreLink.require_none()
    link = open_store_link(
        inner, seconds(settings["BYTESCHEDULER_TIMEOUT"]), lambda text: _say(settings, text)
    )
    _say(
        settings,
        f"MXNet's {inner.type} store carries the bytes, scheduled ("
        f"{_many(link.num_workers, 'worker')}, {_many(link.num_servers, 'stock server')}; bslaunch "
        "gets the native back end)",
    )
    _say_untuned(settings, "stock servers hold tensors as they were cut first")
    return inner, NativeStore(link, inner)


def _class_over(mine: "Type[ScheduledKVS]", wrapped: object) -> "Type[ScheduledKVS]":
    """Return `mine`, or one like it that can be asked without a store what `wrapped` can do."""
    capable = inspect.getattr_static(wrapped, "is_capable", None)
    own = mine.is_capable is not ScheduledKVS.is_capable  # of a class derived by others
    if own or not isinstance(capable, staticmethod):
        return mine
    same = {name: getattr(mine, name) for name in ("__doc__", "__module__", "__qualname__")}
    return type(mine.__name__, (mine,), {**same, "is_capable": capable})


@KVStoreBase.register
class ScheduledKVS(KVStore):  # type: ignore[misc]  # MXNet has no types
    """A KVStore whose urgent tensors go first.

    Use it like the store it wraps, or as ``mx.kv.create("bytescheduler")``; a ``with`` block closes
    it.  A store that is dropped without being closed keeps this process's place in the job, for
    stores to come, until the process ends; on stock servers it is closed, as if by `close`.  All
    methods must be called on one thread at a time.  ``init``, ``broadcast``, ``barrier``, `close`
    and the constructor block; so do the first ``push`` or ``pushpull`` after an optimizer with
    ``multi_precision`` was set, or of row_sparse arrays to a key that was initialised dense,
    ``row_sparse_pull`` for its row numbers, what is sent to servers (``set_optimizer`` of a
    ``dist_async`` store, ``_send_command_to_servers``), and ``set_gradient_compression`` on stock
    servers.  With compression there the 2nd, 4th, 8th, ... push may wait for the slowest worker.
    A priority is an int, of any size.  Errors of
    later work arrive in MXNet as exceptions on the arrays that were pulled, and at the next call
    here.

    Parameters
    ----------
    kvs : KVStoreBase, optional
        The store to wrap.  Its type and, if it is a ``dist`` store of MXNet, its rank are kept.

    Raises
    ------
    TypeError
        `kvs` is not a store, or is scheduled already.
    ConfigError
        A setting is missing or wrong.
    Timeout, PeerLost
        The job did not come together.
    MXNetError
        The back end cannot do what the wrapped store's type promises.
    """

    # Not KVStore.__init__: it would own, and free, a handle that belongs to the wrapped store.
    def __init__(self, kvs: Optional[KVStoreBase] = None) -> None:
        if isinstance(kvs, ScheduledKVS):
            raise TypeError("this store is a ScheduledKVS already")
        if kvs is not None and not isinstance(kvs, KVStoreBase):
            raise TypeError(f"want a store such as mx.kv.create('dist_sync'), got {type(kvs)}")
        settings = _settings()
        self._inner: Optional[Store] = kvs  # kept alive for as long as we live
        try:
            native = settings.get("BYTESCHEDULER_BACKEND") == "native"
            if native and not _is_alone(kvs, settings):
                self._backend = _open_native(kvs, settings)
            else:
                self._inner, self._backend = _open_wrapped(kvs, settings)
            if isinstance(self._backend, PassThrough):
                self.__class__ = _class_over(type(self), self._inner)
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
        depend on it.  Keys that are initialised later are cut so at once.

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
        backend = self._backend
        if not isinstance(backend, NativeStore):
            raise mx.base.MXNetError(
                f"nothing of a {backend.type} store travels in partitions that could change; "
                "start the job with bslaunch"
            )
        backend.retune(partition_bytes, credit_bytes)

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
        backend = self._backend
        scheduled = isinstance(backend, NativeStore) and not backend.compresses
        backend.set_gradient_compression(compression_params)
        if scheduled:
            _say(
                _settings(),
                f"MXNet's {self.type} store carries the bytes from here on, unscheduled: stock "
                "servers take compressed tensors in one piece only",
            )

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
    """What ``mx.kv.create("bytescheduler")`` makes: a ScheduledKVS that wraps nothing."""

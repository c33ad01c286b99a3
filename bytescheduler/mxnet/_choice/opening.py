"""The choice of the back end that a store gets, and its start."""

from typing import Dict, Optional, Tuple

import mxnet as mx
from mxnet.kvstore import KVStore

from bytescheduler._native import Worker, await_names, check_settings
from bytescheduler._process.say import counted, say
from bytescheduler._process.where import at
from bytescheduler._session.direct import (
    check_kind,
    check_left_over,
    check_without_nccl,
    in_direct_job,
    place_in_direct_job,
)
from bytescheduler._session.opening import kind_of, open_session
from bytescheduler._session.place import Place
from bytescheduler._session.whose import Whose, whose_scheduler
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.mxnet._choice.meeting import meets_by_ipv6
from bytescheduler.mxnet._choice.own_store import OwnStore
from bytescheduler.mxnet._functions import open_plugin
from bytescheduler.mxnet._sessions.framework import MXNet, give_up_at_end, let_go
from bytescheduler.mxnet._sessions.stock_session import StockSession, open_stock_session
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.async_store import AsyncStore
from bytescheduler.mxnet._stores.backend import Backend
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet._stores.passthrough import PassThrough
from bytescheduler.mxnet._stores.stand_in import StandIn
from bytescheduler.mxnet._types import Store

__all__ = ["await_scheduler", "check_job", "open_backend", "open_stand_in", "passes_on"]

# This process's place in a job of our own servers, which its stores share.
JOB: Place[TensorSession] = Place()
# Its place on MXNet's servers, which know a single store of each process.
STOCK: Place[StockSession] = Place()
# MXNet's own dist store of this process, which gives all its stores their rank.
OWN = OwnStore()
# The kind of the scheduler node at an address, once this process has asked there.
WHOSE: Dict[str, Whose] = {}

_SECOND = (
    "this process has a store on stock servers already, which take one of each process: use that "
    "one, close it first, or start the job with bslaunch"
)
# A worker is refused so where servers are MXNet's own (bs::StatusCode::kNotFound).
_NO_SERVERS_OF_OURS = 6

_OWN_SERVERS = "start the job with bslaunch --servers N"

# Stands in for a job where there is none, so that the other settings can be checked.
_NO_JOB = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "1",
    "DMLC_WORKER_ID": "0",
}


def open_backend(inner: Optional[Store], settings: Settings) -> Tuple[Optional[Store], Backend]:
    """Return the back end of a store around `inner`, and the store that it is around.  Blocks.

    Raises
    ------
    ConfigError, Timeout, PeerLost, MXNetError
        As `ScheduledKVS`.
    """
    if _takes_part(inner):
        check_job(settings)
    if _is_native(inner, settings):
        try:
            return inner, _open_native(inner, settings)
        except UsageError as error:
            if not _goes_on(error, settings):
                raise
    return _open_wrapped(inner, settings)


def check_job(settings: Settings) -> None:
    """Raise ConfigError if variables do not go with the kind of this process's job, or MXNet."""
    check_without_nccl(settings, "MXNet's arrays")
    check_left_over()
    check_kind()


def await_scheduler(settings: Settings) -> None:
    """Return when the scheduler node answers, for which MXNet's own store waits for ever.  Blocks.

    Raises
    ------
    ConfigError, Timeout
        A setting is wrong, or it does not answer within BYTESCHEDULER_TIMEOUT.
    """
    _whose(settings)


def passes_on(inner: Store, settings: Settings) -> bool:
    """Return whether the back end of a store around `inner` only passes calls on."""
    return not _is_native(inner, settings) and _why_unscheduled(inner, settings) is not None


def _is_native(inner: Optional[Store], settings: Settings) -> bool:
    if settings.backend == "auto":
        may_join = _may_join(inner, settings)
        return may_join and (in_direct_job() or _whose(settings) is Whose.OURS)
    return settings.backend == "native" and not _is_alone(inner, settings)


def _may_join(inner: Optional[Store], settings: Settings) -> bool:
    """Return whether a store around `inner` has a part in a job, of whatever servers."""
    return _takes_part(inner) and _in_job(settings)


def _takes_part(inner: Optional[Store]) -> bool:
    """Return whether a store around `inner` has a part in a job, if there is one."""
    return inner is None or (isinstance(inner, KVStore) and "dist" in str(inner.type))


def _in_job(settings: Settings) -> bool:
    """Return whether this process is a worker of a job, direct or with servers."""
    return settings.role == "worker" or in_direct_job()


def _num_workers(settings: Settings) -> int:
    """Return how many workers the job has; 1 where none is told."""
    told = place_in_direct_job().get("DMLC_NUM_WORKER")
    return int(told) if told else settings.num_workers or 1


def _whose(settings: Settings) -> Whose:
    """Return the kind of the scheduler node, by its side of the handshake.  Blocks."""
    if JOB.session() is not None:
        return Whose.OURS
    check_settings()
    root = at(settings.root_host, settings.root_port)
    if root not in WHOSE:
        await_names()
        WHOSE[root] = whose_scheduler(settings, lambda text: _note(settings, text))
    return WHOSE[root]


def _goes_on(error: BaseException, settings: Settings) -> bool:
    """Return whether our scheduler node has refused us for servers that are MXNet's own."""
    refused = isinstance(error, UsageError) and error.code == _NO_SERVERS_OF_OURS
    return refused and settings.backend == "auto"


def _is_alone(inner: Optional[Store], settings: Settings) -> bool:
    """Return whether `inner` is a third party's store in a job with a single worker."""
    foreign = inner is not None and not isinstance(inner, KVStore) and "dist" not in str(inner.type)
    return foreign and _num_workers(settings) == 1


def _note(settings: Settings, sentence: str) -> None:
    """Print a line beside the engine's own, unless its level is above."""
    if settings.is_talkative:
        say(f"bytescheduler: {sentence}")


def _note_untuned(settings: Settings, reason: str) -> None:
    if settings.tuning_is_given and settings.tuning != "off":
        _note(settings, f"BYTESCHEDULER_TUNING={settings.tuning} changes nothing: {reason}")


# -- on servers of ours ----------------------------------------------------------------------------


def _join(stock: Optional[Store], settings: Settings) -> TensorSession:
    """Join the job, or share the place that another store of this process has in it."""
    if in_direct_job():
        return _join_direct()
    check_settings()
    stock = OWN.get() if stock is None else stock
    shared = JOB.session()
    if shared is not None and stock is not None and stock.rank != shared.rank:
        raise mx.base.MXNetError(
            f"this process is worker {shared.rank} already, but the stock store has rank "
            f"{stock.rank}: wrap the dist store first, other stores after it"
        )
    framework = MXNet(stock)
    root = settings.root_host and settings.root_port
    return JOB.join(
        lambda worker: _session(worker, framework),
        framework,
        job=at(settings.root_host, settings.root_port) if root else "",
        wanted_rank=-1 if stock is None else stock.rank,
    )


def _join_direct() -> TensorSession:
    """Do as `_join` in a direct job, which has no store of MXNet's own."""
    framework = MXNet()
    session = open_session(JOB, lambda worker: _session(worker, framework), framework=framework)
    assert session is not None  # else this process were alone
    return session


def _session(worker: Worker, framework: MXNet) -> TensorSession:
    return TensorSession(worker, open_plugin(worker, in_place=True), framework)


def _open_native(inner: Optional[Store], settings: Settings) -> Backend:
    name = "" if inner is None else str(inner.type)
    num_workers = _num_workers(settings)
    if name and "dist" not in name and num_workers > 1:
        raise mx.base.MXNetError(
            f"a {name} store in a job of {counted(num_workers, 'worker')}: its "
            'type tells MXNet that there is one worker; use mx.kv.create("dist_sync")'
        )
    session = None
    if isinstance(inner, StandIn):
        session = inner.take_session()  # later stores around it get none, and share the place
        inner = None
    stock = inner if isinstance(inner, KVStore) and "dist" in name else None
    try:
        session = session or _join(stock, settings)
    except BaseException as error:
        if stock is not None and not _goes_on(error, settings):
            let_go(stock)
        raise
    _note(settings, f"native back end carries the bytes ({_told(session, settings)})")
    if "async" in name:
        _note_untuned(settings, "tensors of an asynchronous store keep their partitions")
        return AsyncStore(session, inner, kind=name)
    session.tune()
    return NativeStore(session, inner, kind=name, records=bool(settings.timeline))


def _told(session: TensorSession, settings: Settings) -> str:
    """Return the size of the job, and why it has this back end."""
    if session.hosts_server:
        return kind_of(session)
    reason = "the servers are ours"
    if settings.backend == "native":
        reason = "BYTESCHEDULER_BACKEND=native"
    workers = counted(session.num_workers, "worker")
    return f"{workers}, {counted(session.num_servers, 'server')}; because {reason}"


def open_direct_stand_in(name: str, settings: Settings) -> StandIn:
    """Return a stand-in for MXNet's own store of this name, in a direct job.  Blocks.

    Raises
    ------
    MXNetError
        The store is asynchronous: it needs servers of its own.
    ConfigError, Timeout, PeerLost
        As `ScheduledKVS`.
    """
    _check_direct_backend(settings)
    if "async" in name:
        raise mx.base.MXNetError(
            f"a {name} store needs servers that outlive each worker, and in a direct job the "
            f"workers host them: {_OWN_SERVERS}, or use dist_sync"
        )
    return StandIn(name, _join_direct(), "a direct job has no servers for MXNet's own store")


def _check_direct_backend(settings: Settings) -> None:
    if settings.backend in ("kvstore", "passthrough"):
        raise ConfigError(
            f"BYTESCHEDULER_BACKEND={settings.backend} needs servers of MXNet's own, and this is a "
            f"direct job, which has none: unset it, or {_OWN_SERVERS}",
            1,
        )


def open_stand_in(name: str, settings: Settings) -> Optional[StandIn]:
    """Return a stand-in for MXNet's own store of this name, or None.  Blocks.

    None: MXNet's own can be had.

    Parameters
    ----------
    name : str
        The name of a dist store.
    settings : Settings
        The settings of this process.

    Raises
    ------
    MXNetError
        Neither can be had: stock servers take a single store of a process, and know only IPv4.
    ConfigError, Timeout, PeerLost
        As `ScheduledKVS`.
    """
    second = OWN.get() is not None or JOB.session() is not None or STOCK.session() is not None
    by_ipv6 = meets_by_ipv6(settings)
    if not second and not settings.secret_file and not by_ipv6:
        return None
    if not _is_native(None, settings):
        _check_no_secret(name, settings)
        raise mx.base.MXNetError(_SECOND if second else _no_ipv6(settings))
    try:
        session = _join(None, settings)
    except UsageError as error:
        if _goes_on(error, settings):
            raise mx.base.MXNetError(_SECOND) from None
        raise
    reason = "MXNet's own store waits for ever as the second one of a process"
    if by_ipv6:
        reason = _only_ipv4(settings)
    if settings.secret_file:
        reason = "MXNet's own store cannot take part in a job with BYTESCHEDULER_SECRET_FILE"
    return StandIn(name, session, reason)


def _no_ipv6(settings: Settings) -> str:
    remedy = f"{_servers_of_ours(settings)}, or let the nodes meet at an IPv4 address"
    return f"{_only_ipv4(settings)}: {remedy}"


def _only_ipv4(settings: Settings) -> str:
    return (
        "MXNet's own stores and servers know only IPv4, and DMLC_PS_ROOT_URI="
        f"{settings.root_host} is an IPv6 address"
    )


# -- over a store of MXNet's, or a third party's ---------------------------------------------------


def _why_unscheduled(inner: Store, settings: Settings) -> Optional[str]:
    """Return why the store's own operations are used as they are; None if we schedule them."""
    if settings.backend == "passthrough":
        return "because BYTESCHEDULER_BACKEND=passthrough"
    name = str(inner.type)
    if not isinstance(inner, KVStore) or "dist" not in name:
        return "it is no dist store of MXNet's, so nothing of it travels in partitions"
    if "async" in name:
        return "its servers update at each push, so its tensors cannot be partitioned"
    if inner._is_p3:
        return "P3 partitions and orders its tensors itself"
    return None


def _servers_of_ours(settings: Settings) -> str:
    if settings.backend in ("kvstore", "passthrough"):
        return f"unset BYTESCHEDULER_BACKEND={settings.backend} where the servers are ours"
    return (
        "start the job by bslaunch, or with BYTESCHEDULER_BACKEND=native and servers of ours "
        "(python -m bytescheduler.server)"
    )


def _check_no_secret(name: str, settings: Settings) -> None:
    """Refuse to carry tensors in the clear that the user believes to be encrypted."""
    if settings.secret_file:
        raise ConfigError(
            f"BYTESCHEDULER_SECRET_FILE is set, but MXNet's {name} store and its servers encrypt "
            f"nothing: {_servers_of_ours(settings)}, or unset the secret"
        )


def _require_no_stock_session() -> None:
    if STOCK.session() is not None:
        raise mx.base.MXNetError(_SECOND)


def _open_wrapped(inner: Optional[Store], settings: Settings) -> Tuple[Store, Backend]:
    check_settings(_NO_JOB)
    in_job = _in_job(settings)
    if inner is None and in_direct_job():
        _check_direct_backend(settings)
    if isinstance(inner, KVStore) and "dist" in str(inner.type):
        _check_no_secret(inner.type, settings)
    elif inner is None and in_job:
        _check_no_secret("dist_sync", settings)
    if inner is None:
        if in_job:
            _require_no_stock_session()  # a second stock store would wait for ever
        inner = mx.kv.create("dist_sync" if in_job else "local")
    reason = _why_unscheduled(inner, settings)
    if reason is not None:
        _note(settings, f"MXNet's {inner.type} store carries the bytes, unscheduled: {reason}")
        _note_untuned(settings, "nothing travels in partitions")
        if isinstance(inner, KVStore) and "dist" in str(inner.type):
            give_up_at_end(inner)
        return inner, PassThrough(inner)
    check_settings()
    _require_no_stock_session()
    session = open_stock_session(inner, settings.timeout_s, lambda text: _note(settings, text))
    STOCK.take(session)
    chosen = settings.backend == "kvstore"
    servers = counted(session.num_servers, "server" if chosen else "stock server")
    reason = (
        "because BYTESCHEDULER_BACKEND=kvstore" if chosen else "bslaunch gets the native back end"
    )
    _note(
        settings,
        f"MXNet's {inner.type} store carries the bytes, scheduled ("
        f"{counted(session.num_workers, 'worker')}, {servers}; {reason})",
    )
    _note_untuned(settings, "stock servers keep the first partitions of a tensor")
    return inner, NativeStore(session, inner)

"""mx.kv.create of a dist store where MXNet's own would wait for ever."""

import gc
import os
import pathlib
from typing import Callable, Iterator, List, Optional

import mxnet as mx
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full
from inline_snapshot import snapshot
from mxnet.kvstore import KVStoreBase

from bytescheduler._session import opening as session_opening
from bytescheduler._session import place
from bytescheduler._session.whose import Whose
from bytescheduler.errors import ConfigError, Timeout, UsageError
from bytescheduler.mxnet import ScheduledKVS
from bytescheduler.mxnet._choice import dist_names, opening
from bytescheduler.mxnet._choice.dist_names import DistNames
from bytescheduler.mxnet._choice.own_store import OwnStore
from bytescheduler.mxnet._stores.stand_in import StandIn

WRAP = r"add kvs = ScheduledKVS\(kvs\)"


class Job:
    """A worker of a job whose nodes are fakes."""

    def __init__(self) -> None:
        self.ranks: List[int] = []  # that workers were opened with
        self.stock: List[str] = []  # stores of MXNet's own that were made
        self.refusal: Optional[UsageError] = None
        self.whose = Whose.OURS
        self.waits: List[bool] = []  # True for a call of on_waiting, False for on_joined
        self.shown: List[Optional[str]] = []  # DMLC_NODE_HOST while a stock store is made


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> "Iterator[Job]":
    made = Job()

    class Opener:
        @staticmethod
        def open(wanted_rank: int) -> FakeWorker:
            made.ranks.append(wanted_rank)
            if made.refusal is not None:
                raise made.refusal
            return FakeWorker()

    def create_stock(name: str) -> mx.kv.KVStore:
        made.stock.append(name)
        made.shown.append(os.environ.get("DMLC_NODE_HOST"))
        return mx.kv.create("local")

    for name, value in opening._NO_JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BYTESCHEDULER_TUNING", "off")  # the fake worker has no steps
    monkeypatch.setattr(opening, "check_settings", lambda *_: None)
    monkeypatch.setattr(dist_names, "await_names", lambda: None)
    monkeypatch.setattr(opening, "await_names", lambda: None)
    monkeypatch.setattr(opening, "whose_scheduler", lambda *_: made.whose)
    monkeypatch.setattr(opening, "WHOSE", {})
    monkeypatch.setattr(place, "Worker", Opener)
    monkeypatch.setattr(opening, "open_plugin", lambda worker, in_place: FakePlugin())
    monkeypatch.setattr(opening, "JOB", place.Place())
    monkeypatch.setattr(opening, "STOCK", place.Place())
    monkeypatch.setattr(DistNames, "_create_stock", staticmethod(create_stock))
    registry = dict(KVStoreBase.kv_registry)
    for name in [name for name in registry if name.startswith("dist")]:
        del KVStoreBase.kv_registry[name]
    monkeypatch.setattr(opening, "OWN", OwnStore())
    DistNames(
        opening.OWN, lambda: made.waits.append(True), lambda: made.waits.append(False)
    ).take_over()
    yield made
    KVStoreBase.kv_registry.clear()
    KVStoreBase.kv_registry.update(registry)


@pytest.fixture
def secret(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret of some length")
    file.chmod(0o600)
    monkeypatch.setenv("BYTESCHEDULER_SECRET_FILE", str(file))


def test_the_first_store_is_mxnets_own(job: Job) -> None:
    assert not isinstance(mx.kv.create("dist_sync"), StandIn)
    assert job.stock == ["dist_sync"]
    assert job.ranks == []
    assert job.waits == [True, False]


def test_mxnets_own_shows_the_address_that_ours_would_show(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLC_NODE_HOST", raising=False)
    kept = mx.kv.create("dist_sync")
    assert job.shown == ["127.0.0.1"]
    assert "DMLC_NODE_HOST" not in os.environ
    del kept


def test_mxnets_own_shows_the_address_of_an_interface_that_is_named(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NODE_HOST", "lo")
    mx.kv.create("dist_sync")
    assert job.shown == ["127.0.0.1"]
    assert os.environ["DMLC_NODE_HOST"] == "lo"


def test_an_interface_that_is_not_there_is_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLC_NODE_HOST", raising=False)
    monkeypatch.setenv("DMLC_INTERFACE", "nosuch")
    with pytest.raises(ConfigError, match="DMLC_INTERFACE=nosuch") as raised:
        mx.kv.create("dist_sync")
    assert str(raised.value).partition("; there are")[0] == snapshot(
        "DMLC_INTERFACE=nosuch: no interface with an IPv4 address starts so"
    )
    assert job.stock == []


def test_mxnets_own_is_not_made_before_the_scheduler_node_answers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> Whose:
        raise Timeout("no response from the scheduler node", 2)

    monkeypatch.setattr(opening, "whose_scheduler", late)
    with pytest.raises(Timeout):
        mx.kv.create("dist_sync")
    assert job.stock == []


@pytest.mark.parametrize("name", ["dist_sync", "dist_device_sync", "dist_async"])
def test_with_a_secret_the_readmes_line_works(job: Job, secret: None, name: str) -> None:
    inner = mx.kv.create(name.upper())
    assert (inner.rank, inner.num_workers, inner.type) == (0, 1, name)
    with ScheduledKVS(inner) as kvs:
        assert (kvs.rank, kvs.num_workers, kvs.type) == (0, 1, name)
        assert not kvs.handle
        kvs._send_command_to_servers(0, "")
        worker = kvs._backend._session._worker
    assert worker.closed, "the stand-in keeps no place of its own"
    assert job.ranks == [-1]
    assert job.stock == []
    assert job.waits == [False]


OPERATIONS: "List[Callable[[mx.kv.KVStore], object]]" = [
    lambda kv: kv.init(0, full(1)),
    lambda kv: kv.push(0, full(1)),
    lambda kv: kv.pull(0, full(1)),
    lambda kv: kv.pushpull(0, full(1)),
    lambda kv: kv.broadcast(0, full(1), full(1)),
    lambda kv: kv.set_optimizer(mx.optimizer.SGD()),
    lambda kv: kv.set_gradient_compression({"type": "2bit"}),
    lambda kv: kv._barrier(),
    lambda kv: kv.handle,
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_stand_in_that_is_not_wrapped_names_the_remedy(
    job: Job, secret: None, operation: "Callable[[mx.kv.KVStore], object]"
) -> None:
    kv = mx.kv.create("dist_sync")
    with pytest.raises(mx.base.MXNetError, match="BYTESCHEDULER_SECRET_FILE: " + WRAP):
        operation(kv)


def test_a_stand_in_that_is_dropped_keeps_the_place_for_another(job: Job, secret: None) -> None:
    mx.kv.create("dist_sync")
    gc.collect()
    with ScheduledKVS(mx.kv.create("dist_sync")), ScheduledKVS():
        pass
    assert job.ranks == [-1]


@pytest.mark.parametrize("backend", ["auto", "kvstore", "passthrough"])
def test_a_secret_is_refused_at_once_where_servers_are_stock(
    job: Job, secret: None, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    job.whose = Whose.STOCK
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", backend)
    with pytest.raises(ConfigError, match="encrypt nothing"):
        mx.kv.create("dist_sync")
    assert job.stock == []


@pytest.fixture
def by_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "fd00::1")


@pytest.mark.parametrize("name", ["dist_sync", "dist_device_sync", "dist_async"])
def test_by_ipv6_the_readmes_line_works(job: Job, by_ipv6: None, name: str) -> None:
    inner = mx.kv.create(name)
    with pytest.raises(mx.base.MXNetError, match="know only IPv4, and .*=fd00::1 is.*: " + WRAP):
        inner.init(0, full(1))
    with ScheduledKVS(inner) as kvs:
        assert (kvs.rank, kvs.num_workers, kvs.type) == (0, 1, name)
    assert job.stock == []


@pytest.mark.parametrize("backend", ["auto", "kvstore", "passthrough"])
def test_stock_servers_are_refused_at_once_by_ipv6(
    job: Job, by_ipv6: None, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    job.whose = Whose.STOCK
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", backend)
    with pytest.raises(
        mx.base.MXNetError,
        match="fd00::1 is an IPv6 address: (start the|unset BYTESCHEDULER_BACKEND=)",
    ):
        mx.kv.create("dist_sync")
    assert job.stock == []


def test_settings_that_mxnet_would_abort_on_are_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_PORT", "1234\r")
    with pytest.raises(ConfigError, match="carriage return"):
        mx.kv.create("dist_sync")
    assert job.stock == []


def test_a_second_store_is_native(job: Job) -> None:
    first = ScheduledKVS()
    second = mx.kv.create("dist_sync")
    assert isinstance(second, StandIn)
    with pytest.raises(mx.base.MXNetError, match="as the second one of a process: " + WRAP):
        second.init(0, full(1))
    with first, ScheduledKVS(second) as kvs:
        assert kvs._backend._session is first._backend._session
        for store in (first, kvs):
            store.init(0, full(1))  # keys of its own
    assert job.stock == []


def test_a_second_store_stands_beside_the_first_which_is_not_wrapped_yet(job: Job) -> None:
    first = mx.kv.create("dist_sync")
    second = mx.kv.create("dist_async")
    assert not isinstance(first, StandIn)
    assert isinstance(second, StandIn)
    assert job.ranks == [first.rank]


def test_a_scheduled_store_of_its_own_stands_beside_one_that_is_not_wrapped(job: Job) -> None:
    first = mx.kv.create("dist_sync")
    with ScheduledKVS():
        assert job.ranks == [first.rank]


@pytest.mark.parametrize("whose", [Whose.STOCK, Whose.OURS])
def test_a_second_store_on_stock_servers_is_an_error(job: Job, whose: Whose) -> None:
    job.whose = whose
    job.refusal = UsageError("cannot attach: server 0 is a stock server", 6)
    first = mx.kv.create("dist_sync")
    with pytest.raises(mx.base.MXNetError, match="stock servers") as raised:
        mx.kv.create("dist_sync")
    assert str(raised.value) == snapshot(
        "this process has a store on stock servers already, which take one of each process: use "
        "that one, close it first, or start the job with bslaunch"
    )
    del first


def test_a_scheduler_node_that_cannot_be_reached_is_an_error_in_time(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Whose:
        raise Timeout("no response: Connection refused", 2)

    monkeypatch.setattr(opening, "whose_scheduler", unreachable)
    with pytest.raises(Timeout, match="Connection refused"):
        mx.kv.create("dist_sync")
    assert job.stock == []


def test_a_script_alone_is_told_how_to_start_it(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_name: str) -> mx.kv.KVStore:
        raise mx.base.MXNetError('Check  notnull: Environment::Get()->find("DMLC_NUM_WORKER")')

    monkeypatch.setenv("DMLC_ROLE", "")
    monkeypatch.setattr(DistNames, "_create_stock", staticmethod(fails))
    with pytest.raises(mx.base.MXNetError, match="start the script with bslaunch --local"):
        mx.kv.create("dist_sync")


def test_outside_a_job_mxnet_decides(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "")
    kept = [mx.kv.create("dist_sync"), mx.kv.create("dist_sync")]
    assert job.stock == ["dist_sync"] * len(kept)


LAUNCHED = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


# The scheduler node has a process of its own.
BY_HAND = {**opening._NO_JOB, "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "0"}


@pytest.fixture(params=[LAUNCHED, BY_HAND], ids=["launched", "by hand"])
def direct(job: Job, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let this process be started without servers; the engine is a fake."""
    for name in opening._NO_JOB:
        monkeypatch.delenv(name)
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)
    worker = FakeWorker()
    worker.rank, worker.num_workers, worker.num_servers = 1, 2, 2
    monkeypatch.setattr(session_opening, "open_worker", lambda *_: worker)


@pytest.mark.parametrize("name", ["dist_sync", "dist_device_sync"])
def test_in_a_direct_job_the_readmes_line_works(
    direct: None, job: Job, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    inner = mx.kv.create(name)
    assert (inner.rank, inner.num_workers, inner.type) == (1, 2, name)
    with pytest.raises(mx.base.MXNetError, match="a direct job has no servers for .*: " + WRAP):
        inner.init(0, full(1))
    with ScheduledKVS(inner) as kvs, ScheduledKVS() as second:
        assert (kvs.rank, kvs.num_workers, kvs.type) == (1, 2, name)
        assert second._backend._session is kvs._backend._session
    assert job.stock == []
    assert job.waits == [False]
    told = "carries the bytes (direct job of 2 workers, each with a server in its process)\n"
    assert told in capfd.readouterr().err


def test_in_a_direct_job_a_process_that_has_left_is_told_so(direct: None) -> None:
    ScheduledKVS().close()
    with pytest.raises(mx.base.MXNetError, match="has left the job of 127.0.0.1:.*last store was"):
        mx.kv.create("dist_sync")


@pytest.mark.parametrize("name", ["dist_async", "dist_device_async"])
def test_an_asynchronous_store_is_refused_in_a_direct_job(
    direct: None, job: Job, name: str
) -> None:
    with pytest.raises(mx.base.MXNetError) as raised:
        mx.kv.create(name)
    assert str(raised.value).replace(name, "NAME") == snapshot(
        "a NAME store needs servers that outlive each worker, and in a direct job the workers host "
        "them: start the job with bslaunch --servers N, or use dist_sync"
    )
    assert job.stock == []


@pytest.mark.parametrize("backend", ["kvstore", "passthrough"])
def test_a_back_end_over_mxnets_servers_is_refused_in_a_direct_job(
    direct: None, job: Job, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", backend)
    for make in (ScheduledKVS, lambda: mx.kv.create("dist_sync")):
        with pytest.raises(ConfigError) as raised:
            make()
        told = str(raised.value).replace(backend, "NAME")
        if "RANK" in os.environ:  # a launcher's variables; the engine refuses it by hand
            assert told == snapshot(
                "BYTESCHEDULER_BACKEND=NAME needs servers of MXNet's own, and this is a direct "
                "job, which has none: unset it, or start the job with bslaunch --servers N"
            )
        assert "BYTESCHEDULER_BACKEND=NAME" in told
        assert "MXNet's own" in told
    assert job.stock == []


def test_a_local_store_in_a_direct_job_keeps_its_own_way(
    direct: None, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ScheduledKVS(mx.kv.create("local")).num_workers == 1
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", "native")
    with pytest.raises(mx.base.MXNetError, match="a local store in a job of 2 workers"):
        ScheduledKVS(mx.kv.create("local"))


@pytest.mark.parametrize("make", [ScheduledKVS, lambda: mx.kv.create("dist_sync")])
def test_counts_of_another_job_are_refused(
    direct: None, monkeypatch: pytest.MonkeyPatch, make: "Callable[[], object]"
) -> None:
    monkeypatch.delenv("DMLC_ROLE", raising=False)
    monkeypatch.delenv("DMLC_PS_ROOT_URI", raising=False)
    monkeypatch.setenv("DMLC_NUM_SERVER", "1")
    with pytest.raises(ConfigError, match="DMLC_NUM_SERVER=1 without DMLC_ROLE"):
        make()


@pytest.mark.parametrize("make", [ScheduledKVS, lambda: mx.kv.create("dist_sync")])
def test_a_way_of_another_kind_of_job_is_refused(
    job: Job, monkeypatch: pytest.MonkeyPatch, make: "Callable[[], object]"
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_COMM", "direct")
    with pytest.raises(ConfigError, match="COMM=direct, and this job has 1 server: unset"):
        make()
    assert job.stock == []


@pytest.mark.parametrize("make", [ScheduledKVS, lambda: mx.kv.create("dist_sync")])
def test_nccl_is_refused(
    direct: None, monkeypatch: pytest.MonkeyPatch, make: "Callable[[], object]"
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_COMM", "nccl")
    with pytest.raises(ConfigError) as raised:
        make()
    assert str(raised.value) == snapshot(
        "BYTESCHEDULER_COMM=nccl: NCCL sums tensors of GPUs, and MXNet's arrays travel through the "
        "host: set BYTESCHEDULER_COMM to direct or mpi"
    )


def test_nccl_inside_hosts_is_refused(direct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_LOCAL_SUMS", "nccl")
    with pytest.raises(ConfigError) as raised:
        ScheduledKVS()
    assert str(raised.value) == snapshot(
        "BYTESCHEDULER_LOCAL_SUMS=nccl: NCCL sums tensors of GPUs, and MXNet's arrays travel "
        "through the host: set BYTESCHEDULER_LOCAL_SUMS=1"
    )

"""ScheduledKVS: what it is to MXNet, which back end it takes, and the one that only passes on."""

import gc
import pathlib
import subprocess
import sys
from typing import Callable, Dict, List, Optional

import mxnet as mx
import numpy as np
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full, train_on_two_devices
from inline_snapshot import snapshot
from mxnet.kvstore import KVStore, KVStoreBase

import bytescheduler.mxnet
from bytescheduler._session import place
from bytescheduler._session.whose import Whose
from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.mxnet import ScheduledKVS, ScheduledKVStore, kvstore
from bytescheduler.mxnet._choice import opening
from bytescheduler.mxnet._sessions.stock_session import StockSession
from bytescheduler.mxnet._stores.async_store import AsyncStore
from bytescheduler.mxnet._stores.passthrough import PassThrough


@pytest.fixture
def local() -> ScheduledKVS:
    return ScheduledKVS(mx.kv.create("local"))


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> "Callable[..., ScheduledKVS]":
    """Return a maker of native stores over a fake engine."""
    ranks = []

    class Opener:
        @staticmethod
        def open(wanted_rank: int) -> FakeWorker:
            ranks.append(wanted_rank)
            return FakeWorker()

    def make(inner: object = None) -> ScheduledKVS:
        return ScheduledKVS(inner)

    monkeypatch.setenv("BYTESCHEDULER_BACKEND", "native")
    monkeypatch.setenv("BYTESCHEDULER_TUNING", "off")  # the fake worker has no steps
    monkeypatch.setattr(opening, "check_settings", lambda *_: None)
    monkeypatch.setattr(place, "Worker", Opener)
    monkeypatch.setattr(opening, "open_plugin", lambda worker, in_place: FakePlugin())
    monkeypatch.setattr(opening, "JOB", place.Place())
    monkeypatch.setattr(opening, "STOCK", place.Place())
    make.ranks = ranks  # type: ignore[attr-defined]
    return make


class FakeDist(KVStore):
    """Looks like a stock dist store; the handle is a local store's."""

    def __init__(self, name: str = "dist_sync", rank: int = 3) -> None:
        super().__init__(mx.kv.create("local").handle)
        self._name, self._rank = name, rank

    def __del__(self) -> None:
        pass

    type = property(lambda self: self._name)
    rank = property(lambda self: self._rank)


def test_public_names_are_sorted_and_both_documented_names_are_one_class() -> None:
    assert sorted(bytescheduler.mxnet.__all__) == bytescheduler.mxnet.__all__
    assert ScheduledKVStore is ScheduledKVS
    assert kvstore.ScheduledKVS is ScheduledKVS


def test_mxnet_can_create_it_by_name() -> None:
    for name in ("bytescheduler", "scheduledkvs", "ByteScheduler"):
        kvs = mx.kv.create(name)
        assert isinstance(kvs, ScheduledKVS)
        assert kvs.type == "local"


def test_it_is_a_store_to_mxnet(local: ScheduledKVS) -> None:
    assert isinstance(local, KVStore)
    assert isinstance(local, KVStoreBase)
    assert local
    assert local.type == "local"
    assert (local.rank, local.num_workers) == (0, 1)
    assert local.handle is local._inner.handle
    assert local._updater is None
    assert local._is_p3 is False
    assert local.is_capable("optimizer")


def test_every_public_method_of_a_store_is_our_own() -> None:
    inherited = {
        name
        for name in vars(KVStore)
        if (not name.startswith("__") or name == "__del__") and name not in vars(ScheduledKVS)
    }
    assert inherited == set()


@pytest.mark.parametrize("wrong", ["dist_sync", 3, object()])
def test_only_a_store_can_be_wrapped(wrong: object) -> None:
    with pytest.raises(TypeError, match="want a store"):
        ScheduledKVS(wrong)


def test_a_scheduled_store_is_returned_as_it_is(local: ScheduledKVS) -> None:
    backend = local._backend
    assert ScheduledKVS(local) is local
    assert ScheduledKVS(kvs=local) is local
    assert ScheduledKVS(ScheduledKVS(local)) is local
    by_name = mx.kv.create("bytescheduler")
    assert ScheduledKVS(by_name) is by_name
    assert local._backend is backend


def test_passing_on_changes_nothing(local: ScheduledKVS) -> None:
    stock = mx.kv.create("local")
    results = []
    for kvs in (stock, local):
        out = [full(0), full(0)]
        kvs.init(3, full(2))
        kvs.pull(3, out=out[0])
        kvs.push(3, [full(1), full(4)], priority=-1)
        kvs.pull(3, out=out, ignore_sparse=False)
        kvs.pushpull(3, out[0], out=out[1])
        kvs.broadcast(4, full(7), out=out[0])
        results.append([array.asnumpy() for array in out])
        with pytest.raises(Exception, match="Cannot save states"):
            kvs.save_optimizer_states("nowhere")
        with pytest.raises(Exception, match="Cannot load states"):
            kvs.load_optimizer_states("nowhere")
        with pytest.raises(Exception, match="not supported"):
            kvs.set_gradient_compression({"type": "2bit"})
        kvs._barrier()
        kvs._send_command_to_servers(0, "x")
    np.testing.assert_array_equal(*results)


def test_passing_on_reaches_updaters_and_sparse_rows(local: ScheduledKVS) -> None:
    local.init(1, full(5).tostype("row_sparse"))
    local.set_optimizer(mx.optimizer.SGD(learning_rate=1, rescale_grad=1.0))
    assert isinstance(local._updater, mx.optimizer.Updater)
    local.push(1, full(1).tostype("row_sparse"))
    out = full(0).tostype("row_sparse")
    local.row_sparse_pull(1, out=out, row_ids=mx.nd.array([1]))
    assert out.asnumpy().tolist() == [[0, 0, 0], [4, 4, 4]]
    local.close()


def test_the_wrapped_store_is_freed_once(local: ScheduledKVS) -> None:
    inner = local._inner
    local.init(1, full(1))
    del local
    gc.collect()
    out = full(0)
    inner.pull(1, out=out)
    assert (out.asnumpy() == 1).all()


@pytest.mark.parametrize("update_on_kvstore", [True, False])
def test_gluon_trains_as_with_the_wrapped_store(update_on_kvstore: bool) -> None:
    stores = [mx.kv.create("device"), ScheduledKVS(mx.kv.create("device"))]
    options = {"update_on_kvstore": update_on_kvstore}
    results = [train_on_two_devices(kvs, 5, **options) for kvs in stores]
    np.testing.assert_array_equal(*results)
    assert (results[0] != 1).all()


# -- which back end ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("", "it is no dist store of MXNet's, so nothing of it travels in partitions"),
        ("kvstore", "it is no dist store of MXNet's, so nothing of it travels in partitions"),
        ("passthrough", "because BYTESCHEDULER_BACKEND=passthrough"),
    ],
)
def test_one_line_says_which_back_end_it_is_and_why(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, setting: str, why: str
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", setting)
    ScheduledKVS(mx.kv.create("local"))
    line = f"bytescheduler: MXNet's local store carries the bytes, unscheduled: {why}\n"
    assert capfd.readouterr().err == line


@pytest.mark.parametrize(
    ("kind", "p3", "why"),
    [
        (
            "dist_async",
            False,
            "its servers update at each push, so its tensors cannot be partitioned",
        ),
        ("dist_sync", True, "P3 partitions and orders its tensors itself"),
    ],
)
def test_some_dist_stores_cut_nothing(
    capfd: pytest.CaptureFixture[str], kind: str, p3: bool, why: str
) -> None:
    store = FakeDist(kind)
    store._is_p3 = p3
    assert ScheduledKVS(store).type == kind
    line = f"bytescheduler: MXNet's {kind} store carries the bytes, unscheduled: {why}\n"
    assert capfd.readouterr().err == line


IN_VAIN = [
    ("", lambda: mx.kv.create("local"), "nothing travels in partitions"),
    ("", lambda: FakeDist("dist_async"), "nothing travels in partitions"),
    ("", FakeDist, "stock servers keep the first partitions of a tensor"),
    (
        "native",
        lambda: FakeDist("dist_async"),
        "tensors of an asynchronous store keep their partitions",
    ),
]


@pytest.mark.parametrize("setting", ["on", "once", "off", ""])
@pytest.mark.parametrize(("backend", "make", "why"), IN_VAIN)
def test_tuning_that_is_asked_for_in_vain_is_told(
    native: "Callable[..., ScheduledKVS]",
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    backend: str,
    make: "Callable[[], object]",
    why: str,
) -> None:
    def open_fake(*_: object) -> StockSession:
        return StockSession(FakeWorker(), FakePlugin())  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "open_stock_session", open_fake)
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", backend)
    monkeypatch.setenv("BYTESCHEDULER_TUNING", setting)
    native(make()).close()
    line = f"bytescheduler: BYTESCHEDULER_TUNING={setting} changes nothing: {why}"
    said = [text for text in capfd.readouterr().err.splitlines() if "_TUNING" in text]
    assert said == ([line] if setting in ("on", "once") else [])


@pytest.mark.parametrize("backend", ["kvstore", "passthrough"])
@pytest.mark.parametrize("name", ["dist_sync", "dist_async", "p3", None])
def test_a_secret_is_not_taken_where_nothing_is_encrypted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: Optional[str], backend: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length")
    secret.chmod(0o600)
    monkeypatch.setenv("BYTESCHEDULER_SECRET_FILE", str(secret))
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", backend)
    monkeypatch.setattr(opening, "open_stock_session", lambda *_: pytest.fail("it was opened"))
    for key, value in opening._NO_JOB.items():
        monkeypatch.setenv(key, value)
    inner = None if name is None else FakeDist("dist_sync_p3" if name == "p3" else name)
    with pytest.raises(
        ConfigError, match=r"SECRET_FILE is set, but MXNet's dist.* encrypt nothing"
    ):
        ScheduledKVS(inner)
    for key in opening._NO_JOB:
        monkeypatch.delenv(key)
    ScheduledKVS(mx.kv.create("local")).close()  # sends nothing


def test_the_line_heeds_the_level(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "warning")
    ScheduledKVS(mx.kv.create("local"))
    assert capfd.readouterr().err == ""


def test_the_native_back_end_says_so(
    native: "Callable[..., ScheduledKVS]", capfd: pytest.CaptureFixture[str]
) -> None:
    with native() as kvs:
        assert kvs.type == "dist_sync"
        assert not kvs.handle
    assert capfd.readouterr().err == snapshot(
        "bytescheduler: native back end carries the bytes "
        "(1 worker, 1 server; because BYTESCHEDULER_BACKEND=native)\n"
    )


@pytest.mark.parametrize(
    ("make", "rank"),
    [(lambda: None, -1), (lambda: mx.kv.create("local"), -1), (FakeDist, 3)],
)
def test_the_worker_attaches_beside_a_stock_dist_store(
    native: "Callable[..., ScheduledKVS]", make: "Callable[[], object]", rank: int
) -> None:
    with native(make()):
        assert native.ranks == [rank]  # type: ignore[attr-defined]


def in_job(monkeypatch: pytest.MonkeyPatch, whose: Whose) -> "List[int]":
    """Let this process be a worker whose scheduler node is `whose`; return how often it asks."""
    asked: List[int] = []

    def ask(*_: object) -> Whose:
        asked.append(1)
        return whose

    for name, value in opening._NO_JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BYTESCHEDULER_BACKEND", "auto")
    monkeypatch.setattr(opening, "whose_scheduler", ask)
    monkeypatch.setattr(opening, "WHOSE", {})
    return asked


@pytest.mark.parametrize("make", [lambda: None, FakeDist, lambda: FakeDist("dist_async")])
def test_auto_is_native_where_the_scheduler_node_is_ours(
    native: "Callable[..., ScheduledKVS]",
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    make: "Callable[[], object]",
) -> None:
    asked = in_job(monkeypatch, Whose.OURS)
    with native(make()) as first, native() as second:
        assert first._backend._session is second._backend._session
    assert capfd.readouterr().err.splitlines()[0] == snapshot(
        "bytescheduler: native back end carries the bytes "
        "(1 worker, 1 server; because the servers are ours)"
    )
    assert len(asked) == 1


def test_auto_schedules_the_stock_store_where_that_is_stock(
    native: "Callable[..., ScheduledKVS]", monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_fake(*_: object) -> StockSession:
        return StockSession(FakeWorker(), FakePlugin())  # type: ignore[arg-type]

    in_job(monkeypatch, Whose.STOCK)
    monkeypatch.setattr(opening, "open_stock_session", open_fake)
    with native(FakeDist()) as kvs:
        assert isinstance(kvs._backend._session, StockSession)
    assert native.ranks == []  # type: ignore[attr-defined]


def test_auto_goes_on_with_the_stock_store_where_only_the_scheduler_node_is_ours(
    native: "Callable[..., ScheduledKVS]", monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused:
        @staticmethod
        def open(wanted_rank: int) -> FakeWorker:
            raise UsageError("cannot attach: server 0 is a stock server", 6)

    def open_fake(*_: object) -> StockSession:
        return StockSession(FakeWorker(), FakePlugin())  # type: ignore[arg-type]

    in_job(monkeypatch, Whose.OURS)
    let_go: List[object] = []
    monkeypatch.setattr(opening, "let_go", let_go.append)
    monkeypatch.setattr(place, "Worker", Refused)
    monkeypatch.setattr(opening, "open_stock_session", open_fake)
    with native(FakeDist()) as kvs:
        assert isinstance(kvs._backend._session, StockSession)
    assert let_go == []  # it waits for the others at its end


def test_a_store_with_no_part_in_the_job_asks_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = in_job(monkeypatch, Whose.OURS)
    assert ScheduledKVS(mx.kv.create("local")).type == "local"
    assert asked == []


def test_an_asynchronous_store_is_updated_by_the_servers(
    native: "Callable[..., ScheduledKVS]",
) -> None:
    with native(FakeDist("dist_async")) as kvs:
        assert kvs.type == "dist_async"
        assert isinstance(kvs._backend, AsyncStore)
        with pytest.raises(mx.base.MXNetError, match="servers keep weights in them"):
            kvs.retune(4096, 10_000)
    with native(FakeDist("dist_sync")) as kvs:
        assert not isinstance(kvs._backend, AsyncStore)


def test_partitions_change_only_where_there_are_some(
    local: ScheduledKVS, native: "Callable[..., ScheduledKVS]"
) -> None:
    kvs = native()
    worker = kvs._backend._session._worker
    kvs.retune(4096, 10_000)
    assert worker.retuned == [(4096, 10_000)]
    for wrong, name in (((-8, 1), "partition_bytes -8"), ((4096, -9), "credit_bytes -9")):
        with pytest.raises(ConfigError, match=f"{name}: want 4 KiB to 1 GiB"):
            kvs.retune(*wrong)
    with pytest.raises(TypeError, match="credit_bytes") as raised:
        kvs.retune(4096, "4 MiB")  # type: ignore[arg-type]
    assert str(raised.value) == snapshot("credit_bytes: want a number of bytes, got '4 MiB'")
    with pytest.raises(ConfigError, match=f"credit_bytes {2**64}: want 4 KiB to 1 GiB"):
        kvs.retune(4096, 2**64)
    assert worker.retuned == [(4096, 10_000)]
    worker.rank = 1
    with pytest.raises(mx.base.MXNetError, match="worker 0 decides"):
        kvs.retune(4096, 10_000)
    with pytest.raises(mx.base.MXNetError, match="nothing of a local store travels in partitions"):
        local.retune(4096, 10_000)
    kvs.close()
    with pytest.raises(mx.base.MXNetError, match="the store was closed"):
        kvs.retune(4096, 10_000)


def test_a_local_store_in_a_job_of_several_workers_is_refused(
    native: "Callable[..., ScheduledKVS]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    with pytest.raises(mx.base.MXNetError, match="a local store in a job of 2 workers"):
        native(mx.kv.create("local"))
    assert native.ranks == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_workers", ["", "1"])
def test_a_custom_store_is_used_as_it_is_by_an_only_worker(
    native: "Callable[..., ScheduledKVS]", monkeypatch: pytest.MonkeyPatch, num_workers: str
) -> None:
    monkeypatch.setenv("DMLC_NUM_WORKER", num_workers)
    kvs = native(mx.kv.create("teststore"))
    assert isinstance(kvs._backend, PassThrough)
    assert not kvs.is_capable("optimizer")
    assert native.ranks == []  # type: ignore[attr-defined]


def test_a_closed_store_says_so_though_the_wrapped_one_lives_on() -> None:
    inner = mx.kv.create("local")
    with ScheduledKVS(inner) as kvs:
        kvs.init(3, mx.nd.ones(2))
    for call in (
        lambda: kvs.push(3, mx.nd.ones(2)),
        lambda: kvs.pull(3, out=mx.nd.ones(2)),
        kvs.barrier,
        lambda: kvs.rank,
    ):
        with pytest.raises(mx.base.MXNetError, match="the store was closed"):
            call()
    inner.push(3, mx.nd.ones(2))


def test_stores_of_one_process_share_its_place_and_not_their_keys(
    native: "Callable[..., ScheduledKVS]",
) -> None:
    first, second = native(), native(mx.kv.create("local"))
    assert len(native.ranks) == 1  # type: ignore[attr-defined]
    worker = first._backend._session._worker
    for kvs, value in ((first, 1), (second, 2)):
        kvs.init([0, 1], [full(value), full(value)])
    assert len({key for key, *_ in worker.declared}) == 4
    first.close()
    first.close()
    with pytest.raises(mx.base.MXNetError, match="the store was closed"):
        first.push(0, full(1))
    out = full(0)
    second.pushpull(1, full(5), out=out)
    assert (out.asnumpy() == 5).all()
    assert not worker.closed
    second.close()
    assert worker.closed


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_process_that_has_left_a_job_is_told_so_at_once(
    native: "Callable[..., ScheduledKVS]", monkeypatch: pytest.MonkeyPatch, drop_first: bool
) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "10.1.2.3")
    monkeypatch.setenv("DMLC_PS_ROOT_PORT", "9000")
    if drop_first:
        native()
        gc.collect()
    native().close()
    with pytest.raises(mx.base.MXNetError, match="has left the job of 10.1.2.3:9000: its last"):
        native()
    assert len(native.ranks) == 1  # type: ignore[attr-defined]
    monkeypatch.setenv("DMLC_PS_ROOT_PORT", "9001")  # another job
    with native():
        assert len(native.ranks) == 2  # type: ignore[attr-defined]


def test_a_second_store_cannot_have_another_rank(native: "Callable[..., ScheduledKVS]") -> None:
    with native(FakeDist(rank=0)) as first:
        with pytest.raises(mx.base.MXNetError, match="worker 0 already, .* has rank 3: wrap"):
            native(FakeDist(rank=3))
        with native(FakeDist(rank=0)) as second:
            assert second.rank == first.rank
            # The one that was refused does not count: the other workers may not have tried it.
            assert [kvs._backend._keys._space for kvs in (first, second)] == [0, 1]


def test_a_block_that_fails_waits_for_nothing(native: "Callable[..., ScheduledKVS]") -> None:
    kvs = native()
    plugin = kvs._backend._session._plugin
    with pytest.raises(KeyError), kvs:
        raise KeyError
    assert plugin.drained[0] == 0.0


def test_a_store_that_is_dropped_keeps_the_place_for_the_next_one(
    native: "Callable[..., ScheduledKVS]",
) -> None:
    """As scripts do that make a store for each of their parts."""
    kvs = native()
    worker = kvs._backend._session._worker
    kvs.init(0, full(1))
    del kvs
    gc.collect()
    assert not worker.closed
    with native() as kvs:
        assert kvs._backend._session._worker is worker
        kvs.init(0, full(2))  # no key of the first store's
        assert len({key for key, *_ in worker.declared}) == 2
    assert worker.closed


@pytest.mark.parametrize("closes", [False, True])
def test_a_store_gives_its_keys_back_once_its_rounds_have_begun(
    native: "Callable[..., ScheduledKVS]", closes: bool
) -> None:
    with native() as kept:
        session = kept._backend._session
        kvs = native()
        kvs.init([3, 4], [full(1), full(2)])
        keys = set(kvs._backend._keys._taken)
        session._operations.unfinished = 1
        if closes:
            kvs.close()
        del kvs
        gc.collect()
        assert not session._worker.given_back
        session._operations.unfinished = 0
        kept.init(5, full(1))
        assert session._worker.given_back == [(key, True) for key in keys]


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"BYTESCHEDULER_BACKEND": "native"}, "DMLC_ROLE"),
        ({"BYTESCHEDULER_BACKEND": "native", "DMLC_ROLE": "worker"}, "DMLC_"),
        ({"BYTESCHEDULER_BACKEND": "fast"}, "BYTESCHEDULER_BACKEND=fast"),
        ({"BYTESCHEDULER_BAKEND": "native"}, "BYTESCHEDULER_BAKEND"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, env: "Dict[str, str]", text: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=text):
        ScheduledKVS(mx.kv.create("local"))


def test_importing_starts_nothing_and_prints_nothing() -> None:
    script = (
        "import threading, bytescheduler, sys; assert 'mxnet' not in sys.modules;"
        "import mxnet; before = threading.active_count();"
        "import bytescheduler.mxnet; assert threading.active_count() == before"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

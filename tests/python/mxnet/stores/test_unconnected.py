"""Dist stores that MXNet cannot connect, as the nodes meet by IPv6."""

import socket

import mxnet as mx
import pytest
from mxnet.kvstore import KVStoreBase

from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError
from bytescheduler.mxnet._stores import unconnected
from bytescheduler.mxnet._stores.tensor_session import TensorSession


class FakeSession:
    rank, num_workers = 1, 3


class Joining:
    """Counts how often the job is joined."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> TensorSession:
        self.count += 1
        return FakeSession()  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("host", "meets"),
    [
        *(("", False), ("10.0.0.1", False), ("::1", True), ("[fd00::1]", True)),
        ("nosuch.invalid", False),
    ],
)
def test_an_address_in_numbers_tells_its_kind(host: str, meets: bool) -> None:
    assert unconnected.meets_by_ipv6(Settings.of({"DMLC_PS_ROOT_URI": host})) is meets


@pytest.mark.parametrize(
    ("families", "meets"),
    [
        ([socket.AF_INET6], True),
        ([socket.AF_INET6, socket.AF_INET], False),
        ([socket.AF_INET], False),
    ],
)
def test_a_name_with_ipv4_addresses_stands_for_these(
    monkeypatch: pytest.MonkeyPatch, families: "list[socket.AddressFamily]", meets: bool
) -> None:
    rows = [(family, socket.SOCK_STREAM, 6, "", ("", 0)) for family in families]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    assert unconnected.meets_by_ipv6(Settings.of({"DMLC_PS_ROOT_URI": "sched"})) is meets


def test_it_joins_once_and_gives_its_session_away() -> None:
    join = Joining()
    store = unconnected.UnconnectedStore("dist_sync", join)
    assert store.type == "dist_sync"
    assert join.count == 0
    assert (store.rank, store.num_workers) == (1, 3)
    assert join.count == 1
    store.take_session()
    assert join.count == 1
    store.take_session()  # another wrapper
    assert join.count == 2


@pytest.mark.parametrize(
    "call", ["init", "push", "pull", "pushpull", "broadcast", "set_optimizer", "_barrier"]
)
def test_what_it_would_have_to_send_is_refused(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.setenv("DMLC_PS_ROOT_URI", "fd00::1")
    store = unconnected.UnconnectedStore("dist_sync", Joining())
    with pytest.raises(mx.base.MXNetError, match="knows only IPv4, and DMLC_PS_ROOT_URI=fd00::1"):
        getattr(store, call)("a", mx.nd.zeros(1))


@pytest.mark.parametrize(
    ("role", "root", "stands_in"),
    [
        *(("worker", "fd00::1", True), ("worker", "10.0.0.1", False)),
        *(("server", "fd00::1", False), ("worker", "", False)),
    ],
)
def test_it_stands_in_only_in_workers_whose_job_meets_so(
    monkeypatch: pytest.MonkeyPatch, role: str, root: str, stands_in: bool
) -> None:
    monkeypatch.setattr(KVStoreBase, "kv_registry", dict(KVStoreBase.kv_registry))
    job = {"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_PORT": "9"}
    for name, value in {**job, "DMLC_ROLE": role, "DMLC_PS_ROOT_URI": root}.items():
        monkeypatch.setenv(name, value)
    unconnected.stand_in_for_dist_stores(Joining())
    assert ("dist_sync" in KVStoreBase.kv_registry) is stands_in
    if stands_in:
        assert isinstance(mx.kv.create("dist_device_sync"), unconnected.UnconnectedStore)
        monkeypatch.setenv("BYTESCHEDULER_BACKEND", "kvstore")
        with pytest.raises(mx.base.MXNetError, match="BACKEND=kvstore needs MXNet's own servers"):
            mx.kv.create("dist_sync")


def test_settings_that_mxnet_would_abort_on_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVStoreBase, "kv_registry", dict(KVStoreBase.kv_registry))
    job = {"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1", "DMLC_PS_ROOT_PORT": "1234\r"}
    for name, value in {**job, "DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    unconnected.stand_in_for_dist_stores(Joining())
    with pytest.raises(ConfigError, match="carriage return"):
        mx.kv.create("dist_sync")

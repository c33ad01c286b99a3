"""Gluon's Trainer and Module with our store by its name, with one device and in a job."""

from typing import List

import mxnet as mx
import pytest

import bytescheduler.mxnet  # noqa: F401  (registers the names)
from bytescheduler.errors import ConfigError


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> "List[str]":
    """Return the names of the stores that are made; each is a local one."""
    names: List[str] = []
    create = mx.kv.create

    def record(name: str) -> object:
        names.append(name)
        return create("local")

    monkeypatch.setattr(mx.kv, "create", record)
    monkeypatch.setattr(mx.kvstore, "create", record)
    return names


def trainer(kvstore: str) -> mx.gluon.Trainer:
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    made = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=kvstore)
    made._init_kvstore()
    return made


@pytest.mark.parametrize("name", ["bytescheduler", "ByteScheduler", "scheduledkvs"])
def test_a_worker_with_one_device_takes_part(
    made: "List[str]", monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DMLC_ROLE", "worker")
    assert trainer(name)._kvstore is not None
    assert made == [name]


LAUNCHED = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_a_worker_of_a_direct_job_takes_part(
    made: "List[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert trainer("bytescheduler")._kvstore is not None
    assert made == ["bytescheduler"]


def test_counts_of_another_job_are_refused(
    made: "List[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    with pytest.raises(ConfigError, match="DMLC_NUM_WORKER=2 without DMLC_ROLE: unset"):
        trainer("bytescheduler")
    assert made == []


@pytest.mark.parametrize(("name", "role"), [("bytescheduler", ""), ("device", "worker")])
def test_else_mxnet_decides(
    made: "List[str]", monkeypatch: pytest.MonkeyPatch, name: str, role: str
) -> None:
    monkeypatch.setenv("DMLC_ROLE", role)
    assert trainer(name)._kvstore is None
    assert made == []


def test_a_module_takes_part_too(made: "List[str]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "worker")
    data = mx.sym.Variable("data")
    module = mx.mod.Module(mx.sym.FullyConnected(data, num_hidden=1), label_names=None)
    module.bind([("data", (2, 2))])
    module.init_params()
    module.init_optimizer(kvstore="bytescheduler")
    assert module._kvstore is not None
    assert made == ["bytescheduler"]

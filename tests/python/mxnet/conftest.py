"""A native store over a fake engine."""

import pathlib
import warnings
from typing import Iterator, List

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MXNet 1.9 uses what NumPy 1.23 calls deprecated
    import mxnet  # noqa: F401

from fake_engine import FakeWorker
from fakes import FakePlugin

from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore


def pytest_collection_modifyitems(items: "List[pytest.Item]") -> None:
    for item in items:
        if pathlib.Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def plugin() -> FakePlugin:
    return FakePlugin()


@pytest.fixture
def session(worker: FakeWorker, plugin: FakePlugin) -> "Iterator[TensorSession]":
    session = TensorSession(worker, plugin)
    yield session
    worker.failure, plugin.unfinished = None, 0
    session.close()


@pytest.fixture
def store(session: TensorSession) -> NativeStore:
    return NativeStore(session)

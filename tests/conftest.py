"""What all Python tests share: signals, ports of their own, and what needs no MXNet."""

import importlib.util
import pathlib
import signal
from typing import Callable, Iterator, List, Optional

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# Folders and files whose tests start workers with MXNet, or import it.
WITH_MXNET = (
    *("e2e", "python/mxnet", "python/benchmarks/test_benchmarks_replay.py"),
    *("python/session/test_one_worker_job.py", "python/session/test_session.py"),
)


class _Skipped(pytest.Module):
    """A module that is not imported."""

    def collect(self) -> List[pytest.Item]:
        """Skip all of it."""
        pytest.skip("needs MXNet, which is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: pathlib.Path, parent: pytest.Collector
) -> Optional[pytest.Module]:
    """Collect nothing from modules that need MXNet where there is none, as on Python 3.12."""
    place = module_path.resolve()
    needs = any(HERE / name in (place, *place.parents) for name in WITH_MXNET)
    if not needs or importlib.util.find_spec("mxnet") is not None:
        return None
    module: pytest.Module = _Skipped.from_parent(parent, path=module_path)
    return module


@pytest.fixture(autouse=True, scope="session")
def _signals_work() -> Iterator[None]:
    """Undo what shells and nohup do to commands in the background: children inherit it."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGQUIT: signal.signal(signal.SIGQUIT, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Return a function that finds another port, which is reserved until the test ends."""
    from bytescheduler._launch.ports import Ports  # house rules are tested without the package

    with Ports() as ports:
        yield ports.free

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


_REASON = "needs MXNet, which is not installed"


class _SkippedModule(pytest.Module):
    """A module that is not imported."""

    def collect(self) -> List[pytest.Item]:
        """Skip all of it."""
        pytest.skip(_REASON, allow_module_level=True)


class _SkippedFolder(pytest.Collector):
    """A folder; it has no path, for which pytest would import its conftest.py."""

    def collect(self) -> List[pytest.Item]:
        """Skip all of it."""
        pytest.skip(_REASON)


def _is_out_of_reach(path: pathlib.Path) -> bool:
    """Return whether those tests need MXNet and there is none, as on Python 3.12."""
    if all(HERE / name not in (path, *path.parents) for name in WITH_MXNET):
        return False
    found = importlib.util.find_spec("mxnet")
    # Where it is missing, the folder of its tests passes for a package, but for one without a file.
    return found is None or found.origin is None


def pytest_collect_directory(
    path: pathlib.Path, parent: pytest.Collector
) -> Optional[pytest.Collector]:
    """Collect nothing from the folder whose conftest.py needs MXNet, where there is none."""
    if path.resolve() != HERE / "python" / "mxnet" or not _is_out_of_reach(path.resolve()):
        return None
    folder: pytest.Collector = _SkippedFolder.from_parent(parent, name=path.name)
    return folder


def pytest_pycollect_makemodule(
    module_path: pathlib.Path, parent: pytest.Collector
) -> Optional[pytest.Module]:
    """Collect nothing from modules that need MXNet where there is none."""
    if not _is_out_of_reach(module_path.resolve()):
        return None
    module: pytest.Module = _SkippedModule.from_parent(parent, path=module_path)
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

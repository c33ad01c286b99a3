"""What all Python tests share: signals, ports of their own, and what needs which framework."""

import gc
import importlib.util
import os
import pathlib
import signal
import sys
from typing import TYPE_CHECKING, Callable, Iterator, List, Optional

import pytest

if TYPE_CHECKING:
    from longest_first import LongestFirst
    from xdist.remote import Producer

HERE = pathlib.Path(__file__).resolve().parent
# Threads for small matrices only wait for each other, and OpenMP's take a processor meanwhile.
# Numpy and frameworks read the settings when they are imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Folders and files whose tests start workers with a framework, or import it.
NEEDS = {
    "torch": ("e2e/torch", "python/torch"),
    "tensorflow": ("e2e/tensorflow", "e2e/jobs/test_tensorflow_examples.py", "python/tensorflow"),
    "mxnet": (
        *("e2e", "python/mxnet", "python/benchmarks/test_benchmarks_replay.py"),
        *("python/session/test_one_worker_job.py", "python/session/test_session.py"),
    ),
}


_REASON = "needs {}, which is not installed"


class _SkippedModule(pytest.Module):
    """A module that is not imported."""

    framework = ""

    def collect(self) -> List[pytest.Item]:
        """Skip all of it."""
        pytest.skip(_REASON.format(self.framework), allow_module_level=True)


class _SkippedFolder(pytest.Collector):
    """A folder; it has no path, for which pytest would import its conftest.py."""

    framework = ""

    def collect(self) -> List[pytest.Item]:
        """Skip all of it."""
        pytest.skip(_REASON.format(self.framework))


def _out_of_reach(path: pathlib.Path) -> str:
    """Return the framework that those tests need and that is not installed, or nothing.

    On Python 3.12 there is no MXNet.
    """
    for framework, names in NEEDS.items():
        if any(HERE / name in (path, *path.parents) for name in names):
            found = importlib.util.find_spec(framework)
            # A folder of tests passes for a package of its name, but for one without a file.
            is_missing = found is None or found.origin is None
            return framework if is_missing else ""
    return ""


def pytest_collect_directory(
    path: pathlib.Path, parent: pytest.Collector
) -> Optional[pytest.Collector]:
    """Collect nothing from a folder whose conftest.py needs a framework that is not there."""
    with_conftest = (HERE / "python" / "mxnet", HERE / "python" / "torch")
    framework = _out_of_reach(path.resolve()) if path.resolve() in with_conftest else ""
    if not framework:
        return None
    folder: _SkippedFolder = _SkippedFolder.from_parent(parent, name=path.name)
    folder.framework = framework
    return folder


def pytest_pycollect_makemodule(
    module_path: pathlib.Path, parent: pytest.Collector
) -> Optional[pytest.Module]:
    """Collect nothing from modules that need a framework which is not there."""
    framework = _out_of_reach(module_path.resolve())
    if not framework:
        return None
    module: _SkippedModule = _SkippedModule.from_parent(parent, path=module_path)
    module.framework = framework
    return module


def pytest_collection_finish() -> None:
    """Let no collection of garbage visit what was imported: most objects of this process."""
    if "hypothesis.core" in sys.modules:
        # Its first test looks for the owner of its random numbers, and sees no frozen object.
        from hypothesis import given, settings, strategies

        settings(max_examples=1, database=None)(given(strategies.none())(lambda _: None))()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Optional[LongestFirst]":
    """Let what takes long begin first, in the place of the files with the most tests."""
    if config.getoption("dist") != "loadfile":
        return None
    from longest_first import LongestFirst

    return LongestFirst(config, log)


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
def free_port() -> Iterator[Callable[..., int]]:
    """Return `Ports.free`; the ports that it finds are reserved until the test ends."""
    from bytescheduler._process.ports import Ports  # house rules are tested without the package

    with Ports() as ports:
        yield ports.free

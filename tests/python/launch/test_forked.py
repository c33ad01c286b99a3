"""A forked worker of a test's job is as one that was started; `json` plays the framework."""

import json
import os
import pathlib
import signal
import sys
from typing import Any, Dict, Iterator, List, Type

import forked
import pytest

from bytescheduler._launch.launcher import Launcher
from bytescheduler._process.child import Child, Streams

WORKERS = pathlib.Path(forked.__file__).parents[2] / "workers"
# Without the second numpy starts threads at its import.
ENV = {**os.environ, "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
LOOKS = """
import ctypes, faulthandler, json, os, signal, sys, threading

def dying():
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
    return number.value

print(json.dumps({
    "words": sys.argv,
    "path": sys.path,
    "environment": {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
    "folder": os.getcwd(),
    "name": __name__,
    "file": __file__,
    "input": sys.stdin.read(),
    "streams": [(s.encoding, s.line_buffering, s.write_through) for s in (sys.stdout, sys.stderr)],
    "faults": faulthandler.is_enabled(),
    "signals": [str(signal.getsignal(n)) for n in (1, 2, 3, 13, 15)],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "dying": dying(),
    "parent": os.getppid(),
    "leads": os.getpgid(0) == os.getpid(),
    "session": os.getsid(0),
    "descriptors": len(os.listdir("/proc/self/fd")),
    "threads": threading.active_count(),
    "is main": threading.current_thread() is threading.main_thread(),
    "has itself": sys.modules["__main__"].LOOKS,
}))
""".replace("print(", "LOOKS = 1\nprint(", 1)


@pytest.fixture(autouse=True)
def _framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "framework_of", lambda script: "json")


class Workers:
    """Starts or forks workers in a folder."""

    def __init__(self, launcher: Launcher, folder: pathlib.Path) -> None:
        self.launcher = launcher
        self._folder = folder

    def begin(self, script: str, *words: str) -> Child:
        path = self._folder / "script.py"
        path.write_text(script)
        with (self._folder / "log").open("wb") as log:
            command = [sys.executable, str(path), *words]
            streams = Streams(stdout=log, stderr=log)
            return self.launcher.start("worker", command, env={"MINE": "1"}, streams=streams)

    def run(self, script: str, *words: str) -> int:
        return self.begin(script, *words).wait(60.0)

    def output(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture(params=[Launcher, forked.ForkingLauncher], ids=["started", "forked"])
def workers(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> "Iterator[Workers]":
    kind: Type[Launcher] = request.param
    with kind(1, 0, ENV, folder=tmp_path) as launcher:
        yield Workers(launcher, tmp_path)


def test_a_forked_worker_sees_the_same_as_a_started_one(tmp_path: pathlib.Path) -> None:
    seen: List[Dict[str, Any]] = []
    for kind in (Launcher, forked.ForkingLauncher, forked.ForkingLauncher):
        with kind(1, 0, ENV, folder=tmp_path) as launcher:
            assert Workers(launcher, tmp_path).run(LOOKS, "a", "b c") == 0
            seen.append(json.loads((tmp_path / "log").read_text()))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["parent"] == os.getpid()


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no luck')", 1, "no luck"),
        ("raise ValueError('no luck')", 1, "ValueError: no luck"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os; os.abort()", -signal.SIGABRT, "Fatal Python error: Aborted"),
        ("import os; os._exit(4)", 4, ""),
        ("import atexit; atexit.register(print, 'the end')", 0, "the end"),
    ],
)
def test_a_worker_ends_with_its_code_and_its_last_words(
    workers: Workers, script: str, code: int, text: str
) -> None:
    assert workers.run(script) == code
    assert text in workers.output()


def test_a_worker_can_be_signalled_with_its_children(workers: Workers) -> None:
    worker = workers.begin("import subprocess; subprocess.run(['sleep', '100'])")
    worker.signal_group(signal.SIGKILL)
    assert worker.wait(60.0) == -signal.SIGKILL


def test_random_numbers_of_workers_differ(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked, "framework_of", lambda script: "numpy")
    script = "import random, numpy; print(random.random(), numpy.random.rand())"
    words = set()
    for _ in range(2):
        assert workers.run(script) == 0
        words.update(workers.output().split())
    assert len(words) == 4


def test_a_framework_that_starts_threads_forks_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    monkeypatch.setattr(forked, "framework_of", lambda script: "threaded")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    launcher = forked.ForkingLauncher(1, 0, env, folder=tmp_path)
    with launcher, pytest.raises(RuntimeError, match="the fork server of threaded has ended"):
        Workers(launcher, tmp_path).begin("")


def test_the_framework_of_a_script_is_the_one_that_it_or_its_neighbours_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    scripts = {
        "cases/cases.py": "mxnet",
        "torch/sums.py": "torch",
        "steps/restarted_worker.py": "",
        "cases/children.py": "",
    }
    found = {name: forked.framework_of(WORKERS / name) for name in scripts}
    assert found == scripts

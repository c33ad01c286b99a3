"""Jobs under the real torchrun, whose processes agree on a port by the store of PyTorch."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Iterator, List

import pytest
from job import WORKERS
from launched import DIRECT, MXNET, NEEDED, TENSORFLOW, assert_direct, needs_tensorflow, run

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

PROGRAM = [sys.executable, "-m", "torch.distributed.run"]
TORCHRUN = [*PROGRAM, "--nproc-per-node", "3"]


def test_each_process_hosts_a_server() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT, "store"])
    assert_direct(done.stdout, 3)


def test_without_a_store_the_port_follows_from_the_number_of_the_job() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT])
    assert_direct(done.stdout, 3)


def test_workers_of_mxnet_need_nothing_else() -> None:
    command = [*PROGRAM, "--nproc-per-node", "2", "--standalone", "--no-python", *MXNET]
    assert run(command).stdout.count("of 2, as before") == 2


@pytest.mark.nightly
@needs_tensorflow
def test_workers_of_tensorflow_need_no_store() -> None:
    command = [*PROGRAM, "--nproc-per-node", "2", "--standalone", "--no-python", *TENSORFLOW]
    assert run(command).stdout.count("all is well") == 2


def test_agents_that_count_restarts_apart_start_the_job_again(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    agent = [
        *PROGRAM,
        "--nnodes",
        "2",
        "--max-restarts",
        "1",
        *meeting,
        "--local-addr",
        "127.0.0.1",
    ]
    command = [*agent, str(WORKERS / "torch" / "joined_again.py"), str(tmp_path / "life")]
    written: List[str] = []
    agents = [threading.Thread(target=lambda: written.append(run(command).stdout)) for _ in "ab"]
    for thread in agents:
        thread.start()
    for thread in agents:
        thread.join()
    text = "\n".join(written)
    assert len(written) == 2, text
    for count in (0, 1):  # only the agent of the lost process counts a restart
        assert f"job 1, {count} restarts" in text, text
    assert text.count(": [3.0, 3.0, 3.0]") == 2 + 2 * 2, text


# torchrun takes a minute to end an agent, to wait for another and to start processes.
nightly = pytest.mark.skipif(not os.environ.get(NEEDED), reason="make nightly-launchers runs it")
LONG_S = 180.0


class Agent:
    """An agent of torchrun whose job has one host or two; its output is in a file."""

    def __init__(self, folder: pathlib.Path, name: str, endpoint: str) -> None:
        command = [
            *(*PROGRAM, "--nnodes", "1:2", "--max-restarts", "3", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1"),
            *("--rdzv-conf", "last_call_timeout=1"),
            *(str(WORKERS / "torch" / "elastic.py"), name),
        ]
        self._log = folder / f"{name}.log"
        self._worker = folder / f"{name}.pid"  # the latest worker, until it ends well
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_for(self, text: str) -> str:
        """Return what it wrote, as soon as `text` is in it."""
        end = time.monotonic() + LONG_S
        while text not in self._log.read_text(errors="replace"):
            assert time.monotonic() < end, self._log.read_text(errors="replace")
            time.sleep(0.1)
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Take its host away: end the agent, and the worker, which has a session of its own."""
        self._process.kill()
        self._process.wait()
        if self._worker.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(self._worker.read_text()), signal.SIGKILL)
            self._worker.unlink()

    def end(self) -> int:
        """Return its exit code."""
        return self._process.wait(LONG_S)


@contextlib.contextmanager
def ended(agents: List[Agent]) -> Iterator[None]:
    try:
        yield
    finally:
        for agent in agents:
            agent.kill()


@nightly
def test_a_job_begins_anew_with_the_hosts_that_are_there(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    endpoint = f"localhost:{free_port()}"
    agents = [Agent(tmp_path, "first", endpoint)]
    with ended(agents):
        agents[0].wait_for("rank 0 of 1 begins at step 0\n")
        agents.append(Agent(tmp_path, "second", endpoint))
        agents[1].wait_for(" of 2 begins at step ")
        agents[0].wait_for(" of 2 begins at step ")
        agents[1].wait_for("is at step ")
        agents[1].kill()
        (tmp_path / "stop").touch()  # the end comes soon
        assert agents[0].end() == 0
    text = (tmp_path / "first.log").read_text()
    begun = [line.split() for line in text.splitlines() if " begins at step " in line]
    assert [line[3] for line in begun] == ["1", "2", "1"], text
    assert 0 == int(begun[0][-1]) < int(begun[1][-1]) < int(begun[2][-1]), text

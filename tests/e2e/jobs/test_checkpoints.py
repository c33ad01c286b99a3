"""The scripts of docs/user/checkpoints.md, word for word, save when the machine is taken away."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from typing import Dict, Iterator, List

import pytest
from job import without_settings
from launched import needs_torch

from bytescheduler._launch.launcher import Launcher, node_command

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "user" / "checkpoints.md"
LIMIT_S = 120.0
BSLAUNCH = node_command()
TRAINS = "is at step 20"


@pytest.fixture
def script(tmp_path: pathlib.Path) -> pathlib.Path:
    return written("mxnet", tmp_path)


def written(framework: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the script of the page that uses a framework to a file."""
    scripts = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (text,) = (text for text in scripts if f"bytescheduler.{framework}" in text)
    path = folder / "train.py"
    path.write_text(text)
    return path


class Running:
    """A process whose output is read as it comes."""

    def __init__(
        self, command: List[str], folder: pathlib.Path, env: Dict[str, str], group: int = 0
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**without_settings(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: os.setpgid(0, group),
        )
        self._deadline = threading.Timer(LIMIT_S, self.process.kill)
        self._deadline.start()
        self.said = ""

    def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}:\n{self.said}")

    def end(self) -> int:
        assert self.process.stdout is not None
        self.said += self.process.stdout.read()
        self._deadline.cancel()
        self.process.stdout.close()
        return self.process.wait(LIMIT_S)


@needs_torch
def test_a_local_job_of_pytorch_saves_and_goes_on(tmp_path: pathlib.Path) -> None:
    path = written("torch", tmp_path)
    steps = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        command = [*BSLAUNCH, "--local", "-w", "2", sys.executable, path.name]
        job = Running(command, tmp_path, {})
        job.read_until("is at step " if steps else TRAINS)
        job.process.send_signal(number)
        assert job.end() == 0, job.said
        steps.append(int(re.findall(r"\[worker 0\] saved at step (\d+)", job.said)[-1]))
        resumed = re.findall(r"rank (\d) goes on from step (\d+)", job.said)
        expected = [(rank, str(steps[0] + 1)) for rank in "01"] if len(steps) > 1 else []
        assert sorted(resumed) == expected, job.said
    assert steps[1] > steps[0] >= 20


def test_a_local_job_saves_and_goes_on_and_prefixes_are_ranks(
    tmp_path: pathlib.Path, script: pathlib.Path
) -> None:
    for backend, number in (("native", signal.SIGTERM), ("kvstore", signal.SIGUSR1)):
        command = [*BSLAUNCH, "--local", "-w", "3", sys.executable, script.name]
        job = Running(command, tmp_path, {"BYTESCHEDULER_BACKEND": backend})
        job.read_until(TRAINS)
        job.process.send_signal(number)
        assert job.end() == 0, job.said
        assert "[worker 0] saved at step" in job.said
        assert ("goes on from the checkpoint" in job.said) == (backend == "kvstore")
        ranks = re.findall(r"\[worker (\d)\] rank (\d) is at step", job.said)
        assert {worker for worker, _ in ranks} == {"0", "1", "2"}
        assert all(worker == rank for worker, rank in ranks)
    assert (tmp_path / "model.params").exists()


@pytest.fixture
def roles(tmp_path: pathlib.Path, script: pathlib.Path) -> Iterator[List[Running]]:
    """Start one of each role and two workers by `bslaunch`, in one process group."""
    with Launcher(2, 1, {}) as launcher:
        env = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(launcher.reserve_port()),
            "DMLC_NUM_WORKER": "2",
            "DMLC_NUM_SERVER": "1",
        }
        # As batch systems do: the same command in every role.
        command = [*BSLAUNCH, sys.executable, script.name]
        made: List[Running] = []
        for role in ("scheduler", "server", "worker", "worker"):
            group = made[0].process.pid if made else 0
            made.append(Running(command, tmp_path, {**env, "DMLC_ROLE": role}, group))
        try:
            yield made
        finally:
            for each in made:
                each.process.kill()
                each.process.wait()


def test_all_roles_may_be_signalled_at_once(tmp_path: pathlib.Path, roles: List[Running]) -> None:
    for worker in roles[2:]:
        worker.read_until(TRAINS)
    os.killpg(roles[0].process.pid, signal.SIGTERM)  # the workers' commands hear it twice
    for each in roles:
        assert each.end() == 0, "\n".join(each.said for each in roles)
    for node, name in zip(roles, ("scheduler", "server")):
        assert f"DMLC_ROLE={name} runs no command; ignored" in node.said
        # It stayed; it says so only if the workers take longer than it takes to look.
        assert "the job ended in good order" in node.said
    assert (tmp_path / "model.params").exists()

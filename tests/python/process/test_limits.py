"""Too few open files: errors of commands and of nodes name the limit."""

import errno
import os
import resource
import subprocess
import sys
from typing import List

import pytest

from bytescheduler._process import limits


def with_files(most: int, command: List[str], **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that may have `most` open files."""

    def bound() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    return subprocess.run(
        command,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=bound,
    )


def test_only_open_files_are_explained() -> None:
    def said(number: int) -> str:
        return limits.reason(OSError(number, os.strerror(number)))

    assert "ulimit -n" in said(errno.EMFILE)
    assert "fs.file-max" in said(errno.ENFILE)
    assert said(errno.ENOENT) == os.strerror(errno.ENOENT)


@pytest.mark.parametrize("transport", ["tcp", "zmq"])
@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_node_names_the_limit(role: str, transport: str) -> None:
    node = with_files(
        24,
        [sys.executable, "-m", "bytescheduler.server"],
        DMLC_ROLE=role,
        DMLC_NUM_WORKER="2",
        DMLC_NUM_SERVER="1",
        DMLC_PS_ROOT_URI="127.0.0.1",
        DMLC_PS_ROOT_PORT="9",
        BYTESCHEDULER_TRANSPORT=transport,
    )
    assert node.returncode == 1
    assert "24 that a process may have (ulimit -n)" in node.stderr
    assert "Traceback" not in node.stderr


@pytest.mark.parametrize("most", [10, 16, 24])
def test_a_job_names_the_limit(most: int) -> None:
    launch = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "4", "--", "true"]
    job = with_files(most, launch)
    assert job.returncode != 0
    assert "(ulimit -n)" in job.stdout + job.stderr
    assert "Traceback" not in job.stdout + job.stderr

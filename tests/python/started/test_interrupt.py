"""Ctrl-C in a worker of a local job: one line instead of a traceback."""

import os
import subprocess
import sys

import pytest

from bytescheduler._started import interrupt


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("KeyboardInterrupt", "bytescheduler: interrupted\n"),
        (
            "RuntimeError('worker 1 gave up: uncaught KeyboardInterrupt')",
            "bytescheduler: worker 1 gave up: uncaught KeyboardInterrupt\n",
        ),
    ],
)
def test_an_error_from_ctrl_c_is_one_line_in_a_local_job(raised: str, said: str) -> None:
    program = f"from bytescheduler._started import ready; raise {raised}"
    for local in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, interrupt.NAME: "1" if local else ""},
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0
        assert (done.stderr == said) == local
        assert ("Traceback" in done.stderr) != local


def test_other_exceptions_keep_their_traceback() -> None:
    program = "from bytescheduler._started import ready; raise ValueError('mine')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, interrupt.NAME: "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ValueError: mine\n")

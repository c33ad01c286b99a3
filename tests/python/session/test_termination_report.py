"""A worker that gets SIGTERM says why the job failed, and ends by the signal."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
from bytescheduler._session.termination_report import TerminationReport
from bytescheduler.errors import PeerLost, UsageError

seen = []

def status():
    seen.append(0)
    if sys.argv[1] == "left":
        raise UsageError("the worker is closed", 5)
    return PeerLost("lost worker 1", 4) if len(seen) > 2 else None

if sys.argv[1] == "own":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("its own"))
if sys.argv[1] == "again":
    TerminationReport(lambda: PeerLost("of an earlier job", 4)).install()
TerminationReport(status).install()
if sys.argv[1] == "child" and os.fork():
    sys.exit(os.WTERMSIG(os.wait()[1]))
if sys.argv[1] == "child":
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
LOST = "bytescheduler: the job failed: lost worker 1\n"
ENDED = -signal.SIGTERM


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        ("lost", ENDED, LOST),
        ("again", ENDED, LOST),
        ("left", ENDED, ""),
        ("own", 1, "its own\n"),
        ("child", -ENDED, ""),
    ],
)
def test_it_says_why_unless_the_script_does(case: str, code: int, said: str) -> None:
    command = [sys.executable, "-c", SCRIPT, case]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (code, said)

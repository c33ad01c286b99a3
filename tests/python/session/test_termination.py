"""SIGTERM makes a worker say why the job failed; a late signal ends no script that handles it."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
from bytescheduler._session.termination import TerminationReport
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


# Module globals are let go after the interpreter has set the default handlers again.
LATE = """
import os, signal, sys
from bytescheduler._session.termination import TerminationReport, ignore_late_signals

number = int(sys.argv[2])

class Late:
    def __del__(self, kill=os.kill, us=os.getpid(), number=number):
        kill(us, number)
        print("alive", flush=True)

late = Late()
if sys.argv[1] != "default":
    signal.signal(number, lambda *_: print("handled"))
if sys.argv[1] == "report":
    signal.signal(number, signal.SIG_DFL)
    TerminationReport(lambda: None).install()
if sys.argv[1] != "without":
    ignore_late_signals()
    ignore_late_signals()
if sys.argv[1] == "script":
    os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize(
    ("case", "number", "ends", "output"),
    [
        ("script", signal.SIGTERM, False, "handled\nalive\n"),
        ("handled", signal.SIGTERM, False, "alive\n"),
        ("handled", signal.SIGINT, False, "alive\n"),
        ("handled", signal.SIGQUIT, False, "alive\n"),
        ("handled", signal.SIGALRM, True, ""),
        ("without", signal.SIGTERM, True, ""),
        ("default", signal.SIGTERM, True, ""),
        ("default", signal.SIGINT, True, ""),
        ("report", signal.SIGTERM, True, ""),
    ],
)
def test_a_late_signal_ends_only_a_script_that_does_not_handle_it(
    case: str, number: signal.Signals, ends: bool, output: str
) -> None:
    command = [sys.executable, "-c", LATE, case, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-number if ends else 0, output), done.stderr

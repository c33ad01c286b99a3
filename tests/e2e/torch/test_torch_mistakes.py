"""What a launcher prints when one worker makes a mistake: its traceback once, at the end."""

import re
import sys

import pytest
from job import WORKERS
from launched import run

SCRIPT = str(WORKERS / "torch_faults/mistake.py")
LOG = re.compile(r"\[\w+( \d+)?\] \d{4}-\d\d-\d\d .* INFO ")


@pytest.mark.parametrize(("ending", "uncaught"), [("raise", "uncaught "), ("finally", "")])
def test_bslaunch_prints_each_consequence_in_a_line_and_the_traceback_last(
    ending: str, uncaught: str
) -> None:
    launcher = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "3", "--"]
    done = run([*launcher, sys.executable, SCRIPT, ending], code=1)
    said = [line for line in done.stdout.splitlines() if not LOG.match(line)]
    reason = f"worker 1 gave up: {uncaught}ValueError: my bug"
    for peer in (0, 2):
        lines = [line for line in said if line.startswith(f"[worker {peer}] ")]
        lost = [line for line in lines if reason in line]
        assert lost == lines[-1:], done.stdout
        assert lost[0].startswith(f"[worker {peer}] bytescheduler.errors.PeerLost: ")
    assert done.stdout.count("Traceback") == 1
    first = said.index("[worker 1] Traceback (most recent call last):")
    assert all(line.startswith("[worker 1] ") for line in said[first:]), done.stdout
    assert said[-1] == "[worker 1] ValueError: my bug"
    assert [line for line in said if line.startswith("bslaunch: ") and "my bug" in line]
    # The line of the source, the last line, both peers, two nodes, and one or two of bslaunch.
    assert done.stdout.count("my bug") <= 8
    assert len(said) <= 20, done.stdout


@pytest.mark.parametrize("ending", ["exit", "os-exit"])
def test_bslaunch_tells_peers_an_exit_code_that_python_hides(ending: str) -> None:
    launcher = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "--"]
    done = run([*launcher, sys.executable, SCRIPT, ending], code=3)
    peer = [line for line in done.stdout.splitlines() if line.startswith("[worker 0] bytesch")]
    assert peer[-1].startswith(
        "[worker 0] bytescheduler.errors.PeerLost: worker 1 gave up: exit code 3"
    ), done.stdout
    assert "left the job" not in done.stdout
    assert "lost worker" not in done.stdout


def test_under_torchrun_only_the_worker_with_the_mistake_prints_a_traceback() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = run([*torchrun, "--standalone", SCRIPT, "finally"], code=1)
    assert "ValueError: my bug" in done.stdout
    assert "_session" not in done.stdout, done.stdout  # in no traceback of the other one

"""Commands under real launchers: whether they are here, and what their workers print."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Dict, List, Optional, Sequence

import pytest

from bytescheduler._launch.launcher import node_command

__all__ = [
    "BSLAUNCH",
    "DIRECT",
    "MXNET",
    "NEEDED",
    "TENSORFLOW",
    "TORCH",
    "WORKER",
    "assert_direct",
    "needs_tensorflow",
    "needs_torch",
    "ranks_in",
    "require",
    "run",
]

BSLAUNCH = node_command()
_STEPS = pathlib.Path(__file__).resolve().parents[1] / "workers" / "steps"
WORKER = [sys.executable, str(_STEPS / "ranked_worker.py")]
# Two averages by a worker whose process hosts a server.
DIRECT = [sys.executable, str(_STEPS / "direct_worker.py"), "2"]
# A worker of PyTorch, which says so if all is well.
TORCH = [sys.executable, str(_STEPS.parent / "torch" / "sums.py")]
# README's line, which says so if the sum of two workers is right.
MXNET = [sys.executable, str(_STEPS.parent / "cases" / "readme_line.py"), ""]
# A worker of TensorFlow, to which PyTorch seems not to be installed; it says so if all is well.
TENSORFLOW = [sys.executable, str(_STEPS.parent / "tensorflow" / "first_mean.py")]
needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
_LIMIT_S = 240.0
# `make nightly-launchers` sets it: there all programs must be installed.
NEEDED = "BS_LAUNCHERS_NEEDED"


def require(*programs: str) -> None:
    """Skip the test where a program is not installed; fail in the nightly part."""
    missing = [name for name in programs if shutil.which(name) is None]
    if not missing:
        return
    why = f"{missing[0]} is not installed; make nightly-launchers installs it"
    assert not os.environ.get(NEEDED), why
    pytest.skip(why)


def run(
    command: Sequence[str], env: Optional[Dict[str, str]] = None, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, which has this exit code; both its outputs are in one text."""
    own = {
        name: value
        for name, value in (env or os.environ).items()
        if not name.startswith(("DMLC_", "BYTESCHEDULER_"))
    }
    own["BYTESCHEDULER_LOG_LEVEL"] = "warning"
    done = subprocess.run(
        command,
        env=own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == code, f"{done.returncode}:\n{done.stdout}"
    return done


def ranks_in(text: str) -> List[str]:
    """Return what workers say of themselves, such as "rank 0 of 2, 2 servers, process 3"."""
    return sorted(re.findall(r"rank \d+ of \d+, \d+ servers?, process \d+", text))


def assert_direct(said: str, size: int) -> None:
    """Check what that many processes of `DIRECT` wrote to a good end."""
    ranks = sorted(re.findall(r"rank \d+ of \d+, \d+ servers", said))
    assert ranks == [f"rank {rank} of {size}, {size} servers" for rank in range(size)], said
    averages = re.findall(r"average (\d) is (\S+) to (\S+)", said)
    want = {(str(step), *[f"{(size - 1) / 2 + step:g}"] * 2) for step in range(2)}
    assert set(averages) == want, said
    assert len(averages) == 2 * size, said
    assert said.count("left\n") == size, said

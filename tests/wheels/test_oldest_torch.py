"""The oldest PyTorch that pyproject.toml promises trains, with a job of this source tree."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKERS = ROOT / "tests" / "e2e" / "workers" / "torch"
COMMAND = "from _bytescheduler_command import bslaunch; bslaunch()"
# The wheel brings CUDA, some 2.5 GB.
INSTALL_S = 1800
NEWEST_PYTHON = (3, 11)  # that this PyTorch has a wheel for
# The rest of crossing.py takes names that came with later versions.
SCRIPTS = [
    ["oldest.py"],
    ["sums.py"],
    ["parallel.py"],
    ["names.py"],
    ["crossing.py", "copies", "memory"],
]


def oldest() -> str:
    """Return the first version that the extra `torch` takes."""
    text = (ROOT / "pyproject.toml").read_text()
    found = re.search(r'^torch = \["torch>=([\d.]+)"', text, re.M)
    assert found is not None
    return f"{found.group(1)}.0"


def run(*command: str, timeout: int = 300) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": f"{ROOT}", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an environment with that PyTorch; BS_OLDEST_TORCH is the Python of one that is there."""
    there = os.environ.get("BS_OLDEST_TORCH")
    if there:
        return there
    if sys.version_info[:2] > NEWEST_PYTHON:
        pytest.skip(f"PyTorch {oldest()} has no wheel for this Python")
    folder = tmp_path_factory.mktemp("oldest") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    program = str(folder / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", program, "install", "-q")
    # Its compiler imports packaging, which its wheel does not ask for.
    needs = ("numpy<2", "packaging", "click", "prometheus-client", "tqdm")
    run(*pip, f"torch=={oldest()}", *needs, timeout=INSTALL_S)
    return program


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script[0])
def test_it_trains_as_the_newest_does(python: str, script: "list[str]") -> None:
    assert oldest() in run(python, "-c", "import torch; print(torch.__version__)")
    name, *checks = script
    said = run(
        *(python, "-c", COMMAND, "--local", "-w", "2", "-s", "1", "--", python),
        *(str(WORKERS / name), *checks),
    )
    assert said.count("all is well") == 2

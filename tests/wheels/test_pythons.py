"""Each promised Python gets an extension, a wheel and an installation, and runs a job.

BS_PYTHONS=all takes every promised Python, else the oldest and the newest are taken.
"""

import os
import pathlib
import re
import subprocess
import sys
from typing import Dict, List

import make
import pytest
import pythons

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "e2e" / "workers" / "steps" / "first_sum.py"
BUILD = pathlib.Path(os.environ.get("BS_BUILD", ROOT / "build")).resolve() / "release"


def chosen() -> List[str]:
    versions = pythons.promised()
    return versions if os.environ.get("BS_PYTHONS") == "all" else [versions[0], versions[-1]]


def requirements(version: str) -> List[str]:
    """Return what to install: on the oldest Python the oldest that we promise to work with."""
    text = (ROOT / "pyproject.toml").read_text()
    match = re.search(r"^dependencies = \[(.*)\]$", text, re.M)
    assert match is not None
    floors = re.findall(r'"([^"]+)"', match.group(1))
    assert floors
    assert all(re.fullmatch(r"[a-z-]+>=[\d.]+", floor) for floor in floors), floors
    if version == pythons.promised()[0]:
        return [floor.replace(">=", "==") for floor in floors]
    return floors


def run(*command: str, **env: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": "", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def extensions() -> Dict[str, pathlib.Path]:
    """Build for all Pythons that are tested here, at once; return version -> extension."""
    programs = pythons.interpreters(chosen())
    built = make.build_extensions(BUILD, programs.values(), os.cpu_count() or 1)
    names = {re.sub(r"^_core\.cpython-3(\d+)-.*", r"3.\1", path.name): path for path in built}
    assert set(names) == set(programs)
    return names


@pytest.mark.parametrize("version", chosen())
def test_it_installs_and_runs_a_job(
    version: str, extensions: Dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    program = pythons.find(version)
    if program is None:
        pytest.skip(pythons.why_missing(version))
    wheel = make.pack(extensions[version], tmp_path)
    tag = f"cp{version.replace('.', '')}"
    assert f"-{tag}-{tag}-linux_" in wheel.name
    run(program, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    run(*pip, str(wheel), *requirements(version))
    command = str(tmp_path / "venv" / "bin" / "bslaunch")
    said = run(command, "--local", "-w", "2", "-s", "1", "--", python, "-W", "error", str(WORKER))
    assert said.count("summed at") == 2
    assert said.count("the job ended in good order") == 2

"""Wheels of `make wheel` carry what they need, and the source distribution builds (nightly)."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile
from typing import List

import make
import pytest
import pythons
from bare_root import BareRoot, why_not_here

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "e2e" / "workers" / "steps" / "first_sum.py"
CARRIED = ("libzmq", "libsodium", "libhwloc", "libnuma")
MAX_BYTES = 40e6


def wheel_of(version: str) -> pathlib.Path:
    tag = f"cp{version.replace('.', '')}"
    found = list((ROOT / "dist").glob(f"*-{tag}-{tag}-{make.PLATFORM}.whl"))
    if not found:
        if pythons.find(version) is None:
            pytest.skip(pythons.why_missing(version))
        raise AssertionError(f"`make wheel` made none for Python {version}")
    return found[0]


def installed(program: str, wheel: pathlib.Path, folder: pathlib.Path) -> None:
    pip = [program, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--target", str(folder), str(wheel)], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("version", pythons.promised())
def test_a_wheel_runs_a_job_where_nothing_else_is(version: str, tmp_path: pathlib.Path) -> None:
    reason = why_not_here()
    if reason is not None:
        pytest.skip(reason)
    wheel, program = wheel_of(version), pythons.find(version)
    assert program is not None
    root = BareRoot(tmp_path / "root", program)
    present = {path.name for path in root.folder.rglob("*")}
    assert not [name for name in present if name.startswith((*CARRIED, "cc1", "gcc", "g++"))]
    installed(program, wheel, root.packages)
    shutil.copy(str(WORKER), str(root.folder / "tmp"))
    python = (f"python{version}", "-W", "error")
    launch = (*python, "-m", "bytescheduler", "launch", "--local", "-w", "2", "-s", "1", "--")
    job = root.run(*launch, *python, "/tmp/first_sum.py")
    assert job.returncode == 0, job.stdout
    assert job.stdout.count("summed at") == 2
    page = root.run(*python, "-m", "bytescheduler", "docs", "running")
    assert page.stdout.startswith("# How do I run a job?")
    copied = root.run(*python, "-m", "bytescheduler", "examples", "/tmp/examples")
    assert copied.returncode == 0, copied.stdout
    assert (root.folder / "tmp/examples/image-classification/train_mnist.py").is_file()


@pytest.mark.parametrize("version", pythons.promised())
def test_a_wheel_is_small_and_has_libraries_with_their_licences(version: str) -> None:
    wheel = wheel_of(version)
    assert wheel.stat().st_size < MAX_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    for library in CARRIED:
        assert any(re.search(rf"\.libs/{library}-", name) for name in names), library
        assert any(re.search(rf"licenses/{library}\d+\.txt$", name) for name in names), library
    carried = [name for name in names if ".libs/" in name and not name.endswith("/")]
    licences = [name for name in names if "/licenses/lib" in name]
    assert len(licences) >= len(carried) > len(CARRIED), (carried, licences)
    assert any(name.endswith("_share/docs/operate/grafana.json") for name in names)
    assert any(name.endswith("/c_api.h") for name in names)
    assert not [name for name in names if "__pycache__" in name]


def pip(*arguments: str, **env: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command,
        cwd="/",
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_source_distribution_builds_and_runs_a_job(tmp_path: pathlib.Path) -> None:
    made: List[str] = ["setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    made += ["sdist", "-d", str(tmp_path)]
    subprocess.run([sys.executable, *made], cwd=str(ROOT), check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    pip("wheel", "-q", "--no-deps", "-w", str(tmp_path), str(archive))
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip("--python", python, "install", "-q", str(wheel))
    launch = [str(tmp_path / "venv" / "bin" / "bslaunch"), "--local", "-w", "2", "-s", "1", "--"]
    job = subprocess.run(
        [*launch, python, str(WORKER)],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    assert job.returncode == 0
    assert job.stdout.count("summed at") == 2

"""Where no guest with soft-RoCE can run, ``make nightly-rdma`` says why and passes."""

import os
import pathlib
import platform
import subprocess
import sys

import guest_image
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_tests_in_a_guest_are_skipped_with_the_reason(tmp_path: pathlib.Path) -> None:
    # A machine with nothing on its path.
    env = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    words = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/rdma"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "needs the packages " in done.stdout
    assert "qemu-system-x86" in done.stdout
    assert " passed" not in done.stdout


def test_another_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(guest_image.NoGuest, match="for x86_64, this is riscv64"):
        guest_image.image()


def test_a_kernel_that_cannot_be_had_is_a_reason(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*guest_image.PROGRAMS, "apt-cache", "apt-get"]:
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'Depends: linux-image-1-amd64'\n")
        program.chmod(0o755)
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho 'no network here' >&2\nexit 100\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(guest_image.NoGuest, match="apt-get -o APT::.* failed: no network here"):
        guest_image.image()

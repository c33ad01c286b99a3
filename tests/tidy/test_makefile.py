"""The Makefile: its list of targets, modules that it runs, limits, what `make wheel` installs."""

import math
import os
import pathlib
import re
import subprocess
from typing import List

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
DOCUMENTED = re.findall(r"^([a-z][a-z-]*):.*  ## (.+)$", MAKEFILE, re.M)


def make(*arguments: str) -> str:
    """Return what make prints, without the settings of a make that runs these tests."""
    env = {
        name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=str(ROOT),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def requirements(text: str) -> List[str]:
    return re.findall(r'"([^"]+)"', text)


def test_help_lists_each_target_that_has_a_comment() -> None:
    assert len(DOCUMENTED) > 30
    lines = make("help").splitlines()
    assert [tuple(line.split(None, 1)) for line in lines] == DOCUMENTED
    assert len({line.index(text) for line, (_, text) in zip(lines, DOCUMENTED)}) == 1


def test_targets_that_a_page_names_have_a_comment() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    named = {
        target for page in pages for target in re.findall(r"`make ([a-z-]+)`", page.read_text())
    }
    assert len(named) > 5
    assert sorted(named - {target for target, _ in DOCUMENTED}) == []


def test_modules_that_it_runs_are_there() -> None:
    modules = re.findall(r"/python -m ((?:benchmarks|bytescheduler)(?:\.\w+)+)", MAKEFILE)
    assert len(modules) > 1
    places = [ROOT / module.replace(".", "/") for module in modules]
    assert [place for place in places if not place.with_suffix(".py").is_file()] == []


def test_fuzzers_at_night_end_within_the_time_that_the_page_names(tmp_path: pathlib.Path) -> None:
    commands = make("--dry-run", f"BUILD={tmp_path}", "nightly-fuzz")
    limits = dict(re.findall(r"/(\w+)_fuzz -runs=1000000 -max_total_time=(\d+) ", commands))
    fuzzers = re.search(r"^FUZZERS := (.*)$", MAKEFILE, re.M)
    assert fuzzers is not None
    assert sorted(limits) == sorted(fuzzers.group(1).split())
    (seconds,) = set(map(int, limits.values()))
    assert math.ceil(len(limits) / 2) * seconds <= 90 * 60  # two run at a time
    page = (ROOT / "docs" / "design" / "testing.md").read_text()
    assert f"a million inputs of each fuzzer, or {seconds // 60} minutes of it" in page


def test_a_wheel_needs_neither_a_framework_nor_tests(tmp_path: pathlib.Path) -> None:
    commands = make("--dry-run", "--always-make", f"VENV={tmp_path}/venv", "wheel")
    assert "wheels/make.py" in commands
    installed = re.findall(r"(?:pip install|progress\.py|torch_build\.py) (.*)", commands)
    assert len(installed) == 2  # pip itself, and the tools
    assert not re.search(r"-e |torch|mxnet|pytest", " ".join(installed))
    assert "libgtest-dev" not in commands


def test_the_package_and_the_image_have_the_wheel_s_tools() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    tools = re.search(r"^WHEEL_TOOLS := (.*)$", MAKEFILE, re.M)
    build = re.search(r"^requires = \[(.*)\]$", pyproject, re.M)
    image = (ROOT / "example" / "docker" / "Dockerfile").read_text()
    in_image = re.search(r"/tools/bin/pip install --no-cache-dir (.*) \\$", image, re.M)
    assert tools is not None
    assert build is not None
    assert in_image is not None
    assert set(requirements(build.group(1))) <= set(requirements(tools.group(1)))
    assert sorted(requirements(in_image.group(1))) == sorted(requirements(tools.group(1)))


def test_each_framework_brings_the_tuner() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    frameworks = ("mxnet", "mxnet-cu112", "torch", "tensorflow")
    for name in frameworks:
        extra = re.search(rf"^{name} = \[(.*?)\]\n(?=\S)", pyproject, re.M | re.S)
        assert extra is not None
        assert "bytescheduler[tuning]" in requirements(extra.group(1)), name

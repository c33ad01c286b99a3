"""What stands on the screen while pip installs and the engine is built."""

import pathlib
import sys
from typing import List

import progress
import pytest


def shown(*lines: str) -> List[str]:
    seen = progress.Progress()
    return [text for text in map(seen.shown, lines) if text is not None]


def test_a_build_by_ninja_shows_its_first_step_and_each_tenth() -> None:
    lines = [f"  [{step}/296] Building CXX object src/base/{step}.cc.o" for step in range(1, 297)]
    texts = shown(*lines)
    assert texts[0] == "building the engine: 0 %, step 1 of 296"
    assert texts[1] == "building the engine: 10 %, step 30 of 296"
    assert texts[-1] == "building the engine: 100 %, step 296 of 296"
    assert len(texts) == 11


def test_a_build_by_make_shows_its_percent() -> None:
    lines = ("[  0%] Building CXX object a.o", "[ 57%] Building b.o", "[ 58%] Building c.o")
    assert shown(*lines, "[100%] Built target bs_python") == [
        "building the engine: 0 %",
        "building the engine: 57 %",
        "building the engine: 100 %",
    ]


def test_a_second_build_begins_anew() -> None:
    assert len(shown("[1/2] a", "[2/2] b", "[1/2] a", "[2/2] b")) == 4


def test_a_large_download_is_shown_with_its_size() -> None:
    texts = shown(
        "  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (502.3 MB)",
        "  Downloading https://host/simple/mxnet-1.9.1-py3-none-any.whl (49.1 MB)",
        "Downloading tqdm-4.70.1-py3-none-any.whl (79 kB)",
        "Downloading sympy-1.14.0-py3-none-any.whl (6.3 MB)",
        "Downloading cuda-1-py3-none-any.whl (1.2 GB)",
    )
    assert texts == [
        "downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl: 502.3 MB",
        "downloading mxnet-1.9.1-py3-none-any.whl: 49.1 MB",
        "downloading cuda-1-py3-none-any.whl: 1.2 GB",
    ]


@pytest.mark.parametrize(
    "line", ["", "Collecting numpy", "-- Found hwloc", "[notice] pip", "[x/3]"]
)
def test_all_else_is_left_out(line: str) -> None:
    assert shown(line) == []


def test_lines_come_while_the_command_runs(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command ends only when its line was printed: a file that the test makes tells it."""
    seen = tmp_path / "seen"
    program = (
        "import pathlib, sys, time\n"
        "print('[1/2] a', flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < end:\n"
        "    time.sleep(0.01)\n"
        "sys.exit(0 if pathlib.Path(sys.argv[1]).exists() else 9)\n"
    )

    class Screen(progress.Progress):
        def shown(self, line: str) -> str:
            seen.touch()
            return f"{super().shown(line)}"

    patch = pytest.MonkeyPatch()
    patch.setattr(progress, "Progress", Screen)
    with patch.context():
        done = progress.run([sys.executable, "-c", program, str(seen)])
    patch.undo()
    assert done == progress.Done(0, "[1/2] a\n")
    assert capfd.readouterr().out == "building the engine: 50 %, step 1 of 2\n"


def test_a_failed_installation_prints_all_that_pip_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "pip_install", lambda _: progress.Done(1, "no disk\n"))
    assert progress.main(["-e", "."]) == 1
    assert capsys.readouterr().out == "pip install -e .\nno disk\n"


def test_an_installation_that_succeeds_prints_none_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "pip_install", lambda _: progress.Done(0, "Collecting tqdm\n"))
    assert progress.main(["tqdm"]) == 0
    assert capsys.readouterr().out == "pip install tqdm\n"

"""clang-tidy reads a source again if it failed or anything that it reads has changed."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Dict, List

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "lanes" / "lint_sources.py"
# Notes the source, and finds the word BUG; the word STOP interrupts the run.
CLANG_TIDY = """#!/bin/sh
if [ "$1" = --version ]; then echo "version ${VERSION:-1}"; exit; fi
for source; do :; done
basename "$source" >>"$(dirname "$0")/read"
if grep -q STOP "$source"; then kill -INT "$PPID"; exit 1; fi
! grep -n BUG "$source" /dev/null
"""


class Tree:
    """Sources with a compile command each, and a clang-tidy that notes what it reads."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.environment: Dict[str, str] = {}
        self.output = ""
        self._read = folder / "bin" / "read"
        self._read.parent.mkdir()
        clang_tidy = self._read.with_name("clang-tidy")
        clang_tidy.write_text(CLANG_TIDY)
        clang_tidy.chmod(0o755)
        self.write("shared.h", "int F();\n")
        self.write("a.cc", '#include "shared.h"\n')
        self.write("b.cc", '#include "shared.h"\n#include <cstdint>\n')
        self.write("c.cc", "int G();\n")
        self.compile_with()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def compile_with(self, *flags: str) -> None:
        """Write how each source is compiled."""
        entries = [
            {
                "directory": str(self.folder),
                "file": name,
                "command": " ".join(["c++", *flags, "-MD", "-MF", "x.d", "-o", "x.o", "-c", name]),
            }
            for name in ("a.cc", "b.cc", "c.cc")
        ]
        self.write("compile_commands.json", json.dumps(entries))

    def lint(self, *options: str, status: int = 0) -> List[str]:
        """Return the sources that clang-tidy reads in a run."""
        command = [sys.executable, str(SCRIPT), "--commands", str(self.folder)]
        return self.run([*command, "--sources", r"/\w\.cc$", *options], status)

    def run(self, command: List[str], status: int) -> List[str]:
        """Return the sources that clang-tidy reads in a command."""
        self._read.write_text("")
        folders = [str(self._read.parent), str(pathlib.Path(sys.executable).parent)]
        path = ":".join([*folders, os.environ["PATH"]])
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            # A shell that starts it in the background ignores interrupts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.output = done.stdout
        assert done.returncode == status, done.stdout
        return sorted(self._read.read_text().split())


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    """A tree whose sources have passed."""
    tree = Tree(tmp_path)
    assert tree.lint() == ["a.cc", "b.cc", "c.cc"]
    return tree


def test_unchanged_sources_that_passed_are_skipped(tree: Tree) -> None:
    assert tree.lint() == []
    assert tree.output.splitlines()[-1] == "0 of 3 sources read, 0 failed"
    assert sorted(path.name for path in tree.folder.glob("x.*")) == []


def test_a_changed_header_costs_the_sources_that_include_it(tree: Tree) -> None:
    tree.write("shared.h", "int F();  // NOLINT\n")
    assert tree.lint() == ["a.cc", "b.cc"]
    assert tree.lint() == []


def test_a_source_that_failed_is_read_again_and_no_other(tree: Tree) -> None:
    tree.write("b.cc", "int BUG;\n")
    tree.write("c.cc", "int H();\n")
    assert tree.lint(status=1) == ["b.cc", "c.cc"]
    assert "b.cc:1:int BUG;" in tree.output
    assert tree.output.splitlines()[-1] == "2 of 3 sources read, 1 failed"
    assert tree.lint(status=1) == ["b.cc"]
    tree.write("b.cc", "int fixed;\n")
    assert tree.lint() == ["b.cc"]


def test_another_way_to_read_sources_reads_them_all(tree: Tree) -> None:
    every = ["a.cc", "b.cc", "c.cc"]
    tree.compile_with("-DLOG=1")
    assert tree.lint() == every
    tree.write(".clang-tidy", "Checks: bugprone-*\n")
    assert tree.lint() == every
    tree.environment["VERSION"] = "2"
    assert tree.lint() == every
    assert tree.lint("-checks=-*,bugprone-*") == every
    assert tree.lint("-checks=-*,bugprone-*") == []


def test_an_interrupted_run_goes_on_where_it_stopped(tree: Tree) -> None:
    tree.write("a.cc", "int A();\n")
    tree.write("b.cc", "int STOP;\n")
    assert tree.lint("--jobs", "1", status=-signal.SIGINT)[:2] == ["a.cc", "b.cc"]
    tree.write("b.cc", "int B();\n")
    assert tree.lint() == ["b.cc"]


def test_a_source_that_cannot_be_read_fails_in_words_of_the_compiler(tree: Tree) -> None:
    tree.write("a.cc", '#include "absent.h"\n')
    assert tree.lint(status=1) == []
    assert "error: absent.h" in tree.output


def test_a_pattern_without_a_source_is_an_error(tree: Tree) -> None:
    tree.write("compile_commands.json", "[]")
    assert tree.lint(status=1) == []
    assert "error: no source in " in tree.output


def test_the_lint_of_single_files_reads_sources_of_the_engine(tree: Tree) -> None:
    entries = [
        {
            "directory": str(ROOT),
            "file": str(ROOT / name),
            "command": f"c++ -std=c++20 -Isrc -Iinclude -c {ROOT / name}",
        }
        for name in ("src/base/status.cc", "tests/base/status_test.cc")
    ]
    tree.write("compile_commands.json", json.dumps(entries))
    tree.environment["BUILD"] = str(tree.folder)
    command = ["sh", "tests/clang_tidy.sh", "files"]
    assert tree.run(command, 0) == ["status.cc"]
    assert tree.output == "1 of 1 sources read, 0 failed\n"
    assert tree.run(command, 0) == []

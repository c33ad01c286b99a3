"""What makes a snapshot of an output, and what writes it into a test."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest
import rewrite_snapshots
from format_snapshots import LIMIT, pieces, split
from sentences import line_with, masked

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_values_become_names() -> None:
    assert masked("/tmp/a/b: port 9", FOLDER="/tmp/a", PORT=9) == "FOLDER/b: port PORT"


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="PORT is 9"):
        masked("port 8", PORT=9)


def test_one_line_has_the_words() -> None:
    assert line_with("lost", "a\nworker 1 is lost\nb\n") == "worker 1 is lost"
    for text in ("a\nb\n", "lost\nlost\n"):
        with pytest.raises(AssertionError, match="lines have 'lost'"):
            line_with("lost", text)


LONG = "'a\\n' and it's " + "a sentence that is longer than a line " * 5


def test_a_long_string_is_split_and_stays_the_same() -> None:
    source = f"assert said == snapshot(\n    {LONG!r}\n)\nshort = 'a'\n"
    after = split(source)
    assert max(len(line) for line in after.splitlines()) <= LIMIT
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(source))


@pytest.mark.parametrize("source", [f'x = """{LONG}"""\n', f"x = rb{LONG!r}\n"])
def test_other_strings_stay(source: str) -> None:
    assert split(source) == source


def test_a_word_that_is_longer_than_a_line_stays() -> None:
    assert pieces(repr("a" * 200), 50) == [repr("a" * 200)]
    assert pieces(repr("b " + "a" * 200), 50) == ["'b '", repr("a" * 200)]


TEST = """from inline_snapshot import snapshot


def test_a() -> None:
    assert " ".join(["worker 1 of the job is lost"] * 5) == snapshot({})
"""


def test_the_command_rewrites_a_test(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("inline_snapshot")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    test = tmp_path / "test_a.py"
    test.write_text(TEST.format('"worker 2"'))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_a.py"]

    def run(*options: str) -> int:
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [*command, *options], cwd=str(tmp_path), env={"PATH": path}, check=False
        )
        return done.returncode

    assert run() == 1
    run("--inline-snapshot=create,fix")
    assert "worker 2" not in test.read_text()
    assert max(len(line) for line in test.read_text().splitlines()) <= LIMIT
    assert run() == 0


SOURCE = """TEST(A, Fails) {
  EXPECT_SNAPSHOT(first.message(), "a");
  EXPECT_SNAPSHOT(
      Parse("(").message() + Text("a"),
      "worker 1 has "
      "left");
  EXPECT_SNAPSHOT(third, "worker 3");
}
"""
FAILED = """<testsuites><testsuite><testcase name="Fails">
  <failure message=""><![CDATA[{file}:3
Parse("(").message() + Text("a") is not the snapshot
  "worker 1 has left"
but
  "the \\"worker\\" is lost"]]></failure>
  <failure message=""><![CDATA[{file}:7
third is not the snapshot
  "worker 3"
but
  "worker 4"]]></failure>
  <failure message=""><![CDATA[{file}:9
Expected equality of these values:
  1
  2]]></failure>
</testcase></testsuite></testsuites>
"""


def test_snapshots_of_cpp_are_rewritten_where_they_failed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a_test.cc"
    source.write_text(SOURCE)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a_test.xml").write_text(FAILED.format(file=source))
    monkeypatch.setattr(sys, "argv", ["rewrite_snapshots.py", str(tmp_path / "results")])
    formatter = tmp_path / "clang-format"
    formatter.write_text("#!/bin/sh\n")
    formatter.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert rewrite_snapshots.main() == 0
    assert source.read_text() == (
        'TEST(A, Fails) {\n  EXPECT_SNAPSHOT(first.message(), "a");\n'
        '  EXPECT_SNAPSHOT(\n      Parse("(").message() + Text("a"),\n'
        '      "the \\"worker\\" is lost");\n'
        '  EXPECT_SNAPSHOT(third, "worker 4");\n}\n'
    )


def test_a_line_without_a_snapshot_is_an_error() -> None:
    for source in ("EXPECT_EQ(a, b);\n", "EXPECT_SNAPSHOT(a, b);\n"):
        with pytest.raises(ValueError, match="not found|no snapshot"):
            rewrite_snapshots.rewritten(source, 1, '"c"')

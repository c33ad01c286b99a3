"""Snapshots: each one is compared, and a whole sentence of the product is one."""

import ast
import pathlib
import re
from typing import Iterator, List, Set

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = [
    str(path.relative_to(ROOT))
    for folder in ("python", "e2e")
    for path in sorted((ROOT / "tests" / folder).rglob("*.py"))
]
# Text that the test itself gives and gets back.
NO_SENTENCES = {"tests/python/session/test_names.py", "tests/python/test_snapshots.py"}
# A text of as many words is a sentence.
WORDS = 8


def _is_snapshot(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "snapshot"


def _compared_with(assertion: ast.Assert) -> Iterator[ast.expr]:
    """Yield what an assertion's left side must be equal to."""
    test = assertion.test
    if isinstance(test, ast.Compare) and [type(op) for op in test.ops] == [ast.Eq]:
        yield test.comparators[0]


def idle_snapshots(source: str) -> List[int]:
    """Return the lines with a snapshot that nothing is compared with, or that is empty."""
    tree = ast.parse(source)
    used: Set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            used |= {side for side in _compared_with(node) if _is_snapshot(side)}
        elif isinstance(node, ast.FunctionDef):
            cases = [inside for line in node.decorator_list for inside in ast.walk(line)]
            used |= {case for case in cases if _is_snapshot(case)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_snapshot(node)]
    return sorted(node.lineno for node in found if node not in used or len(node.args) != 1)


def sentences(source: str) -> List[int]:
    """Return the lines where a whole sentence is compared, and is no snapshot."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        for side in _compared_with(node) if isinstance(node, ast.Assert) else ():
            text = side.value if isinstance(side, ast.Constant) else ""
            if isinstance(text, str) and len(re.findall(r"[A-Za-z']{2,}", text)) >= WORDS:
                lines.append(side.lineno)
    return sorted(lines)


@pytest.mark.parametrize("path", FILES)
def test_each_snapshot_is_compared(path: str) -> None:
    assert idle_snapshots((ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", sorted({*FILES} - NO_SENTENCES))
def test_a_whole_sentence_is_a_snapshot(path: str) -> None:
    assert sentences((ROOT / path).read_text()) == [], "write snapshot(), then run make snapshots"


def test_the_rules_find_forbidden_snapshots_and_sentences() -> None:
    assert idle_snapshots('x = snapshot("a")\nassert y == snapshot()\n') == [1, 2]
    assert idle_snapshots('assert "a" in snapshot("a b")\n') == [1]
    case = '@pytest.mark.parametrize("x", [snapshot("a")])\ndef test(x):\n    assert f() == x\n'
    assert idle_snapshots('assert y == snapshot("a")\n' + case) == []
    text = "worker 1 of this job has left it, so end"
    assert sentences(f'assert y == "{text}"\nassert y == snapshot("{text}")\n') == [1]
    assert sentences('assert y == "worker 1 has left"\n') == []

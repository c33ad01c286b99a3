"""Python says what it says in plain English; each rule has a source that it must refuse.

A rule is a function from the text of a source to what is wrong in it, and a row of RULES.
"""

import ast
import inspect
import io
import pathlib
import re
import tokenize
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import pytest
from person_words import PERSONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = sorted(
    str(path.relative_to(ROOT))
    for room in ("bytescheduler", "benchmarks")
    for path in (ROOT / room).rglob("*.py")
)

LONGEST_SENTENCE = 25

Text = Tuple[int, str]  # the line where it begins, and the text


def comments(source: str) -> Iterator[Text]:
    """Yield comments; lines of comments below one another are one."""
    line, column, found = 0, 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#").strip()
            alone = not token.line[: token.start[1]].strip()
            if found and alone and token.start == (line + found.count("\n") + 1, column):
                found += "\n" + text
                continue
            if found:
                yield line, found
            line, column = token.start
            column = column if alone else -1
            found = text
    if found:
        yield line, found


def docstrings(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def strings(source: str) -> Iterator[Text]:
    """Yield all texts in quotes, docstrings included, and the fixed parts of f-strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def openings(source: str) -> Iterator[str]:
    """Find comments and docstrings that begin with a word that no sentence should begin with."""
    for line, text in (*comments(source), *docstrings(source)):
        match = re.match(r"(?:of|as|whether|what)\b", text, re.I)
        if match:
            yield f"line {line}: {text.splitlines()[0]}"


def persons(source: str) -> Iterator[str]:
    """Find words for persons: a process is "the worker", "it"."""
    for line, text in (*comments(source), *strings(source)):
        for match in PERSONS.finditer(text):
            yield f"line {line}: {match.group()}: {' '.join(text.split())[:60]}"


def counts(source: str) -> Iterator[str]:
    """Find counts that stand for a number, or a name, which the text then does not give."""
    for line, text in (*comments(source), *docstrings(source)):
        for match in re.finditer(r"\bso (?:many|much|long)\b(?!\s+(?:as|that)\b)", text, re.I):
            yield f"line {line}: {match.group()}: {' '.join(text.split())[:60]}"


def pages(source: str) -> Iterator[str]:
    """Find messages that cite a page of the repository, which an installation does not have."""
    documented = {text for _, text in docstrings(source)}
    for line, text in strings(source):
        cited = re.search(r"\bdocs/(?:user|operate|design)/[\w/.-]+\.md\b", text)
        if cited and inspect.cleandoc(text) not in documented:
            yield f"line {line}: {cited.group()}"


def long_sentences(source: str) -> Iterator[str]:
    """Find sentences of comments and docstrings, up to a stop, colon or semicolon.

    A blank line ends a sentence too, and so does a new item, a line of a tree or a parameter.
    """
    for line, text in (*comments(source), *docstrings(source)):
        for part in re.split(
            r"\n\s*\n|\n(?= *(?:[-*] |[├└]|\d+\. ))|\n[\w, ]+(?: : .*)?\n +(?=\S)", text
        ):
            for sentence in re.split(r"(?<=[.!?:;])[)\"*\]`]*\s+", part):
                if len(sentence.split()) > LONGEST_SENTENCE:
                    yield f"line {line}: {' '.join(sentence.split()[:8])} ..."


class Rule(NamedTuple):
    check: Callable[[str], Iterator[str]]
    refused: Sequence[str]
    taken: Sequence[str]


RULES: Dict[str, Rule] = {
    "openings": Rule(
        openings,
        [
            "# Of the others none is left.\nx = 1\n",
            "x = 1  # as shells have it\n",
            'def f():\n    """What it is."""\n',
            'class C:\n    """Whether it is."""\n',
            "x = 1  # one\n# Whether it is.\ny = 2\n",
        ],
        [
            "# The rest,\n# of which none is left.\nx = 1\n",
            'text = "What is it?"\n',
            'def f():\n    """Return what it is."""\n',
            "# Often it is one.\nx = 1\n",
        ],
    ),
    "persons": Rule(
        persons,
        [
            "# Nobody waits.\nx = 1\n",
            'raise Error(f"{x}: say who it is")\n',
            'def f():\n    """Wait for\n\n    him.\n    """\n',
            "x = 1  # everyone's\n",
        ],
        [
            "# A worker, whose rank is 0, is here (He et al. 2016).\nx = 1\n",
            "who = him = 1\n",
            'print(f"{who} has the others")\n',
        ],
    ),
    "counts": Rule(
        counts,
        ["# So many seconds.\nx = 1\n", 'def f():\n    """Wait for\n    so long."""\n'],
        ["# There are so many that it fails.\nx = 1\n", "# At most 3, not many.\nx = 1\n"],
    ),
    "pages": Rule(
        pages,
        ['say("no such role; docs/user/running.md has them")\n'],
        ['"""Prints docs/user/settings.md."""\n', "# As docs/user/cli.md says.\nx = 1\n"],
    ),
    "long sentences": Rule(
        long_sentences,
        [
            "# " + "word " * 13 + "\n# " + "word " * 13 + "\nx = 1\n",
            'def f():\n    """Do.\n\n    ' + "word " * 26 + '\n    """\n',
        ],
        [
            "# " + "word " * 13 + "end.\n# " + "word " * 13 + "\nx = 1\n",
            'def f():\n    """' + "word " * 13 + "\n\n    " + "word " * 13 + '\n    """\n',
            'def f():\n    """Do.\n\n    x : int\n        '
            + "word " * 20
            + "\n    y\n        "
            + "word " * 20
            + '\n    """\n',
        ],
    ),
}
CASES: List[Tuple[str, str]] = [(name, source) for name in RULES for source in SOURCES]


@pytest.mark.parametrize(("name", "source"), CASES)
def test_a_source_keeps_the_rule(name: str, source: str) -> None:
    assert list(RULES[name].check((ROOT / source).read_text())) == []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_refuses_its_bad_examples_and_takes_its_good_examples(name: str) -> None:
    rule = RULES[name]
    for source in rule.refused:
        assert list(rule.check(source)), f"{name} takes {source!r}"
    for source in rule.taken:
        assert list(rule.check(source)) == [], f"{name} refuses {source!r}"


def test_there_are_sources_to_check() -> None:
    assert len(SOURCES) > 100


def test_a_rule_names_the_line() -> None:
    assert list(persons("x = 1\n\n# The worker\n# and him.\n")) == [
        "line 3: him: The worker and him."
    ]

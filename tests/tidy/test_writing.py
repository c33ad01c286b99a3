"""Pages for people keep the rules of writing; each rule has a text that it must refuse.

A rule is a function from the text of a page to what is wrong in it, and a row of RULES.  Rules for
comments of C++ are rows whose pages are sources.
"""

import functools
import pathlib
import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import pytest
from person_words import PERSONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("example/**/*.md"),
        *ROOT.glob("3rdparty/ps-lite/*.md"),
    ]
)
# These answer one question each, and README names them.
FOR_USERS = [page for page in PAGES if re.match("docs/(?:user|migrate|operate|reference)/", page)]
SOURCES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("include", "src", "3rdparty/ps-lite", "bytescheduler")
    for path in (ROOT / folder).rglob("*.*")
    if path.suffix in (".h", ".cc")
)
CYTHON = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "python").rglob("*.*")
    if path.suffix in (".pyx", ".pxi", ".pxd")
)
# Tables that the code writes: a row is one line, however long its sentence is.
GENERATED = {"docs/user/settings.md", "docs/operate/metrics.md"}
LONGEST_LINE = 200
SENTENCES_OF_A_CELL = 2
LONGEST_SENTENCE = 25
# Folders of the repository that a path in a page begins with.
TOP = "3rdparty|benchmarks|bytescheduler|docs|example|include|python|src|tests"

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.M | re.S)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NOTE = re.compile(r"^\[\^[\w-]+\]:.*(?:\n    .*)*", re.M)
MARK = re.compile(r"\[\^[\w-]+\](?!:)")

# Whichever begins first decides: a comment or a string of C++, or of Cython.
TEXT_OF_CPP = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|(?<!\w)\'(?:[^\'\\\n]|\\.)+\'', re.S
)
TEXT_OF_CYTHON = re.compile(
    r'#[^\n]*|"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.S
)


def blanked(text: str, *patterns: "re.Pattern[str]") -> str:
    """Return the text with what matches replaced by as many lines of nothing."""
    for pattern in patterns:
        text = pattern.sub(lambda match: "x" + "\n" * match.group().count("\n"), text)
    return text


def prose(text: str) -> str:
    """Return the text without code, with each line in its place."""
    return blanked(text, FENCE, SPAN)


def at(text: str, position: int, message: str) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}: {message}"


def long_lines(page: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_LINE and not (page in GENERATED and line.startswith("|")):
            yield f"line {number}: {len(line)} characters"


def long_cells(page: str, text: str) -> Iterator[str]:
    for number, line in enumerate(prose(text).splitlines(), 1):
        if line.startswith("|"):
            for cell in line.replace("\\|", "/").strip("|").split("|"):
                if len(re.findall(r"[.!?:;][)\"]* +(?=[A-Z(\[x*])", cell)) >= SENTENCES_OF_A_CELL:
                    yield f"line {number}: a cell of more than {SENTENCES_OF_A_CELL} sentences"


def long_sentences(page: str, text: str) -> Iterator[str]:
    """Find sentences of paragraphs and lists, up to a stop, colon or semicolon."""
    found = blanked(text, FENCE, NOTE)
    lines = ["" if re.match(r"[|#]|!\[", line) else line for line in found.splitlines()]
    found = LINK.sub("]", SPAN.sub("x", MARK.sub("", "\n".join(lines))))
    for paragraph in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", found):
        words = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", paragraph)
        for sentence in re.split(r"(?<=[.!?:;])[)\"*\]]*\s+", words):
            count = len(sentence.split())
            if count > LONGEST_SENTENCE:
                yield f"{count} words: {' '.join(sentence.split()[:8])} ..."


def persons(page: str, text: str) -> Iterator[str]:
    """Find words for persons: a process is "the worker", "it"."""
    found = prose(text)
    for match in PERSONS.finditer(found):
        yield at(found, match.start(), match.group())


def comments(text: str) -> str:
    """Return the comments of C++, with each line in its place."""
    lines = []
    for line in text.splitlines():
        code = re.sub(r'"(?:[^"\\]|\\.)*"', "x", line)
        lines.append(code.partition("//")[2])
    return "\n".join(lines)


def persons_in(text: str, texts: "re.Pattern[str]") -> Iterator[str]:
    """Find words for persons in what matches `texts`, outside backticks."""
    for match in texts.finditer(text):
        found = blanked(match.group(), SPAN)
        for word in PERSONS.finditer(found):
            line = text.count("\n", 0, match.start()) + found.count("\n", 0, word.start()) + 1
            yield f"line {line}: {word.group()}"


def source_persons(page: str, text: str) -> Iterator[str]:
    """Find words for persons in the comments and strings of C++."""
    yield from persons_in(text, TEXT_OF_CPP)


def cython_persons(page: str, text: str) -> Iterator[str]:
    """Find words for persons in the comments, docstrings and strings of Cython."""
    yield from persons_in(text, TEXT_OF_CYTHON)


def comment_beginnings(page: str, text: str) -> Iterator[str]:
    """Find comments that begin with a word that hides their subject."""
    before = ""
    for number, line in enumerate(comments(text).splitlines(), 1):
        match = re.match(r" (Of|As|Whether|What)\b", line)
        if match and not before:
            yield f"line {number}: begins with {match.group(1)}"
        before = line


@functools.lru_cache(maxsize=None)
def anchors(path: pathlib.Path) -> Set[str]:
    """Return the anchors of a page's headings, named as GitHub names them."""
    found: Set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", blanked(path.read_text(), FENCE), re.M):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}-{number}"
        found.add(unique)
    return found


def broken_links(page: str, text: str) -> Iterator[str]:
    found = prose(text)
    for match in LINK.finditer(found):
        target, _, anchor = match.group(1).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists():
            yield at(found, match.start(), f"no file {target}")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.resolve()):
            yield at(found, match.start(), f"no heading {target}#{anchor}")


def absent_paths(page: str, text: str) -> Iterator[str]:
    """Find paths in backticks, alone or before ``::name``, that are not there."""
    for match in re.finditer(rf"`((?:{TOP})/[\w./-]*)(?:::(\w+))?`", text):
        path, name = ROOT / match.group(1), match.group(2)
        if not path.exists():
            yield at(text, match.start(), f"no {match.group(1)}")
        elif name and not re.search(
            rf"\b(?:def|class) {name}\b|\bTEST\w*\(\w+, {name}\)", path.read_text()
        ):
            yield at(text, match.start(), f"{match.group(1)} has no {name}")


def absent_modules(page: str, text: str) -> Iterator[str]:
    """Find modules of ours that a page runs with ``python -m`` and that are not there."""
    for match in re.finditer(r"\bpython3? -m ((?:benchmarks|bytescheduler)(?:\.\w+)*)", text):
        path = ROOT / match.group(1).replace(".", "/")
        if not path.is_dir() and not path.with_suffix(".py").is_file():
            yield at(text, match.start(), f"no module {match.group(1)}")


def late_commands(page: str, text: str) -> Iterator[str]:
    """Find pages whose first lines below the title are not what a reader types or sees."""
    if not re.match(r"# [^\n]+\n\n(```|~~~)", text):
        yield "does not begin with a title and what to type"


def lonely_notes(page: str, text: str) -> Iterator[str]:
    """Find footnotes without a mark, and marks without a footnote."""
    found = prose(text)
    notes = set(re.findall(r"^(\[\^[\w-]+\]):", found, re.M))
    marks = set(MARK.findall(found))
    for name in sorted(notes ^ marks):
        yield f"{name} is only a {'footnote' if name in notes else 'mark'}"


class Rule(NamedTuple):
    check: Callable[[str, str], Iterator[str]]
    pages: Sequence[str]
    refused: Sequence[str]
    taken: Sequence[str]


RULES: Dict[str, Rule] = {
    "long lines": Rule(
        long_lines, PAGES, ["x" * (LONGEST_LINE + 1)], ["x" * LONGEST_LINE, "short\n" * 100]
    ),
    "long cells": Rule(
        long_cells,
        PAGES,
        ["| a | It ends. The others end. It says why. |", "| It is `a.b`. `B` is. `C` is. |"],
        ["| a | It ends. The others end. |", "| 1.5 | `a. B. C. D` |", "One. Two. Three."],
    ),
    "long sentences": Rule(
        long_sentences,
        PAGES,
        [
            "word " * LONGEST_SENTENCE + "end.",
            "Short.\n\n- " + "word " * 26,
            "One. " + "word " * 26,
        ],
        [
            "word " * (LONGEST_SENTENCE - 1) + "end. The next.",
            "- " + "word " * 24 + "end.[^note]",
            "word " * 20 + ": " + "word " * 20,
            "| " + "word " * 30 + "|",
            "[^note]: " + "word " * 30,
        ],
    ),
    "persons": Rule(
        persons,
        PAGES,
        ["A worker says who is lost.", "He sends it.", "Whoever comes, nobody waits."],
        ["`who` is it?", "```\nwho\n```", "The worker, whose rank is 0, when it there is."],
    ),
    "persons in C++": Rule(
        source_persons,
        SOURCES,
        [
            "// Nobody waits.\n",
            "int x;  // of who came first\n",
            'F("a//b");  // his own\n',
            "/* A block\n * of his. */\n",
            'F("do not say who is "\n  "lost");\n',
            'F(\'"\', "who");\n',
        ],
        [
            "// The worker waits, as `who` says.\n",
            "int who = 1;  // rank\n",
            'F("a \\" b", who);\n',
            "/* block */ int who = 1;\n",
        ],
    ),
    "persons in Cython": Rule(
        cython_persons,
        CYTHON,
        ["# Nobody waits.\n", 'def f():\n    """Tell\n\n    him.\n    """\n', "f('who is it')\n"],
        ["who = 1  # rank\n", 'def f(who):\n    """Tell the worker."""\n', "f('#', who)\n"],
    ),
    "beginnings of comments": Rule(
        comment_beginnings,
        SOURCES,
        ["// Of the worker.\n", "int x;\n  // What it is.\n", "int x;  // As above\n"],
        ["// The sum\n// Of the worker.\n", "int x;  // of it\n", 'F("// Of");\n'],
    ),
    "broken links": Rule(
        broken_links,
        PAGES,
        ["[a](no-such-page.md)", "[a](README.md#no-such-heading)", "[a](#no-such-heading)"],
        ["[a](README.md)", "[a](README.md#two-commands)", "[a](https://example.org/x#y)"],
    ),
    "absent paths": Rule(
        absent_paths,
        PAGES,
        ["`src/no_such_file.cc`", "`tests/tidy/test_writing.py::no_such_test`"],
        ["`tests/tidy/test_writing.py::test_a_page_keeps_the_rule`", "`a/b`", "`src/<layer>`"],
    ),
    "absent modules": Rule(
        absent_modules,
        PAGES,
        ["python -m benchmarks.no_such_module", "`python -m bytescheduler.no.such`"],
        ["python -m bytescheduler.config --markdown", "python -m pip install x"],
    ),
    "late commands": Rule(
        late_commands,
        FOR_USERS,
        ["# How?\n\nIt runs.\n\n```sh\nx\n```\n", "```sh\nx\n```\n", "# How?\n"],
        ["# How?\n\n```sh\nx\n```\n\nIt runs.\n"],
    ),
    "lonely notes": Rule(
        lonely_notes,
        PAGES,
        ["A fact.[^fact]", "[^fact]: Shown by a test."],
        ["A fact.[^fact] Again.[^fact]\n\n[^fact]: Shown by a test.", "`[^fact]`"],
    ),
}
CASES: List[Tuple[str, str]] = [(name, page) for name, rule in RULES.items() for page in rule.pages]


@pytest.mark.parametrize(("name", "page"), CASES)
def test_a_page_keeps_the_rule(name: str, page: str) -> None:
    assert list(RULES[name].check(page, (ROOT / page).read_text())) == []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_refuses_its_bad_examples_and_takes_its_good_examples(name: str) -> None:
    rule = RULES[name]
    assert rule.pages
    for text in rule.refused:
        assert list(rule.check("README.md", text)), f"{name} takes {text!r}"
    for text in rule.taken:
        assert list(rule.check("README.md", text)) == [], f"{name} refuses {text!r}"


def test_readme_leads_to_every_page_for_users() -> None:
    assert FOR_USERS
    named = set(LINK.findall((ROOT / "README.md").read_text()))
    assert [page for page in FOR_USERS if page not in named] == []


def test_a_rule_names_the_line() -> None:
    text = "```\nsh\n```\n\nSee `a` and\nhim.\n"
    assert list(persons("README.md", text)) == ["line 6: him"]
    assert list(source_persons("a.cc", "int a;\n/* b\n * him */\n")) == ["line 3: him"]

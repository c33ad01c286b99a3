"""Comments, pages, variables and tests name the thing; each rule has a text that it must refuse.

Pronouns that stand for nouns are counted in comments, docstrings and pages.  Names of tests have
none: they say the subject and the behaviour.
"""

import ast
import functools
import io
import re
import tokenize
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import pytest
import test_python_writing
import test_writing

ROOT = test_writing.ROOT
PRODUCT = (
    *test_writing.SOURCES,
    *test_writing.CYTHON,
    *(path for path in test_python_writing.SOURCES if path.startswith("bytescheduler/")),
)
PYTHON = tuple(path for path in PRODUCT if path.endswith(".py"))
CYTHON = tuple(path for path in PRODUCT if path.endswith((".pyx", ".pxi")))
PAGES = tuple(page for page in test_writing.PAGES if page not in test_writing.GENERATED)
TESTS = tuple(
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests").rglob("*.*"))
    if path.suffix in (".cc", ".h", ".py")
)

PRONOUN = re.compile(r"\b(?:what|who|whom|whose|ones?|those|others)\b", re.I)
WORD = re.compile(r"[A-Za-z']+")
# A text of fewer than 100 words may hold three pronouns too.
PRONOUNS = 3
SHARE = 0.03
# In 1,000 words of all comments of the product.
MOST_IN_A_THOUSAND = 12
# The most frequent names of variables that do not say what a variable holds.
EMPTY_NAMES = frozenset(
    ("found", "each", "why", "known", "where", "given", "own", "what", "mine", "other", "said")
    + ("one",)
)
# Words that hide the subject of a test, or make a person of a process.
NOT_IN_TEST_NAMES = frozenset(
    ("what", "who", "whom", "whose", "those", "others", "ones")
    + ("he", "his", "him", "somebody", "nobody")
    + ("everyone", "everybody", "anyone", "anybody")
)
CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", re.M)
CAMEL_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@functools.lru_cache(maxsize=None)
def words_of(path: str, text: str) -> str:
    """Return the prose of a page, or the comments and docstrings of a source, without code."""
    if path.endswith(".md"):
        return test_writing.prose(text)
    if path.endswith(".py"):
        parts = [*test_python_writing.comments(text), *test_python_writing.docstrings(text)]
        words = "\n\n".join(part for _, part in parts)
    elif path.endswith((".h", ".cc")):
        words = comments_of(text, test_writing.TEXT_OF_CPP, ("//", "/*"))
    else:
        words = comments_of(text, test_writing.TEXT_OF_CYTHON, ("#", '"""'))
    return test_writing.blanked(words, test_writing.SPAN)


def comments_of(text: str, texts: "re.Pattern[str]", beginnings: Tuple[str, ...]) -> str:
    matches = (match.group() for match in texts.finditer(text))
    return "\n".join(match for match in matches if match.startswith(beginnings))


def count(path: str, text: str) -> Tuple[int, int]:
    """Return the numbers of pronouns and of words."""
    words = words_of(path, text)
    return len(PRONOUN.findall(words)), len(WORD.findall(words))


def pronouns(path: str, text: str) -> Iterator[str]:
    """Find texts in which too many pronouns stand for nouns."""
    number, words = count(path, text)
    if number > max(PRONOUNS, SHARE * words):
        names = ", ".join(PRONOUN.findall(words_of(path, text)))
        yield f"{number} pronouns in {words} words: {names}"


def empty_names(path: str, text: str) -> Iterator[str]:
    """Find variables and parameters whose name does not say what they hold."""
    if path.endswith((".pyx", ".pxi")):
        yield from empty_names_in_cython(text)
        return
    for node in ast.walk(ast.parse(text)):
        name = None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.ExceptHandler):
            name = node.name
        if name in EMPTY_NAMES:
            yield f"line {getattr(node, 'lineno', 0)}: {name}"


def statements(text: str) -> Iterator[List[tokenize.TokenInfo]]:
    """Return the tokens of each logical line of Python or Cython, without comments."""
    line = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP):
            line.append(token)
        elif token.type == tokenize.NEWLINE:
            yield line
            line = []


def stored(line: List[tokenize.TokenInfo]) -> Iterator[tokenize.TokenInfo]:
    """Return the names that a statement declares, assigns or takes as parameters."""
    words = [token.string for token in line]
    depths = []
    depth = 0
    for word in words:
        depth -= word in (")", "]", "}")
        depths.append(depth)
        depth += word in ("(", "[", "{")
    assigns = [i for i, word in enumerate(words) if word == "=" and depths[i] == 0]
    is_declaration = words[0] in ("cdef", "cpdef", "def")
    opens = [i for i, word in enumerate(words) if word == "("]
    is_signature = is_declaration and opens[:1] and not (assigns and assigns[0] < opens[0])
    bound = False  # in the names of a loop or a lambda
    for i, (word, after) in enumerate(zip(words, [*words[1:], ""])):
        bound = (bound or word in ("for", "lambda")) and word not in ("in", ":")
        before = words[i - 1] if i else ""
        if line[i].type != tokenize.NAME or before == ".":
            continue
        if is_signature:
            is_stored = depths[i] == 1 and after in (",", "=", ":", ")")
        else:
            is_target = depths[i] == 0 and bool(assigns) and i < assigns[-1]
            is_declared = is_declaration and depths[i] == 0 and not assigns and after in (",", "")
            is_stored = (is_target and after in (",", "=", ":")) or is_declared
        if is_stored or bound or before == "as" or after == ":=":
            yield line[i]


def empty_names_in_cython(text: str) -> Iterator[str]:
    for line in statements(text):
        for token in stored(line):
            if token.string in EMPTY_NAMES:
                yield f"line {token.start[0]}: {token.string}"


def vague_test_names(path: str, text: str) -> Iterator[str]:
    """Find tests, in C++ with their suite, whose name does not say the subject."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                is_test = node.name.startswith("test_")
                if is_test and NOT_IN_TEST_NAMES.intersection(node.name.split("_")):
                    yield f"line {node.lineno}: {node.name}"
        return
    for match in CPP_TEST.finditer(text):
        name = ".".join(match.groups())
        if NOT_IN_TEST_NAMES.intersection(map(str.lower, CAMEL_WORD.findall(name))):
            yield f"line {text.count(chr(10), 0, match.start()) + 1}: {name}"


class Rule(NamedTuple):
    check: Callable[[str, str], Iterator[str]]
    paths: Sequence[str]
    refused: Sequence[Tuple[str, str]]  # a path, which gives the language, and a text
    taken: Sequence[Tuple[str, str]]


FOUR = "What one has, those and others have.\n"
LONG = "word " * 97 + "what one who\n"

RULES: Dict[str, Rule] = {
    "pronouns in comments": Rule(
        pronouns,
        PRODUCT,
        [
            ("a.cc", f"// {FOUR}"),
            ("a.h", f"int a;  // {FOUR}"),
            ("a.h", f"/* {FOUR} */"),
            ("a.cc", "// One of\n// those, or\n// one of the\n// others.\n"),
            ("a.pyx", f"# {FOUR}"),
            ("a.pxd", f'"""{FOUR}"""'),
            ("a.py", f"# {FOUR}"),
            ("a.py", f'def f():\n    """{FOUR}"""\n'),
            ("a.cc", f"// {LONG}// whose\n"),
        ],
        [
            ("a.cc", "// What one has, those have.\n"),
            ("a.cc", "// `what` and `one` of `those` and `others` and `who`\n"),
            ("a.cc", f'F("{FOUR.strip()}");\nint what, one, those, others;\n'),
            ("a.cc", f"// {LONG}"),
            ("a.cc", f"// {LONG}// {LONG}"),
            ("a.pyx", f"f('{FOUR.strip()}')\nwhat = one = those = others = 1\n"),
            ("a.py", f"f('{FOUR.strip()}')\nwhat = one = those = others = 1\n"),
        ],
    ),
    "pronouns in pages": Rule(
        pronouns,
        PAGES,
        [("a.md", FOUR), ("a.md", f"| {FOUR.strip()} |\n"), ("a.md", f"{LONG}\nwhose\n")],
        [("a.md", f"```\n{FOUR}```\n"), ("a.md", f"`{FOUR.strip()}`\n"), ("a.md", LONG)],
    ),
    "empty names": Rule(
        empty_names,
        (*PYTHON, *CYTHON),
        [
            ("a.py", "found = 1\n"),
            ("a.py", "for each in rows:\n    pass\n"),
            ("a.py", "def f(given):\n    pass\n"),
            ("a.py", "f = lambda why: 1\n"),
            ("a.py", "try:\n    pass\nexcept OSError as why:\n    pass\n"),
            ("a.py", "sums = [one for one in rows]\n"),
            ("a.pyx", "cdef _Settings given = _Settings(rows)\n"),
            ("a.pxi", "    cdef bs_rates given\n"),
            ("a.pxi", "cdef int code, known\n"),
            ("a.pyx", "found = usual.get(key)\n"),
            ("a.pyx", "    code, found = f(\n        key=1)\n"),
            ("a.pyx", "except BaseException as why:\n    pass\n"),
            ("a.pyx", "def fail(self, str why):\n    pass\n"),
            ("a.pyx", "cdef bint takes(void* array, void* other) except -1:\n    pass\n"),
            ("a.pyx", "def close(why='it', *, int rank=1):\n    pass\n"),
            ("a.pyx", "sums = [each for each in rows]\n"),
            ("a.pyx", "f(lambda why: 1)\n"),
            ("a.pyx", "if (found := f()):\n    pass\n"),
        ],
        [
            ("a.py", "lost_worker = found.why(given=1)\n"),
            ("a.py", "rows['found'] = each.why = 1\n"),
            ("a.pyx", "cdef int lost = found.why(given=1, known=2)\n"),
            ("a.pyx", "rows[found] = each.why = given == 1\n"),
            ("a.pyx", "cdef Rounds rounds = found\n"),
            ("a.pyx", "# found = 1\nf('given = 1')\nreturn why\n"),
            ("a.pyx", 'def f():\n    """Return it.\n\n    why = 1\n    """\n    f(why, given)\n'),
        ],
    ),
    "names of tests": Rule(
        vague_test_names,
        TESTS,
        [
            ("a.cc", "TEST(Header, WhatIsNoneIsRefused) {}\n"),
            ("a.cc", "TEST_F(RejoinTest,\n       AWorkerLeavesHisPlace) {}\n"),
            ("a.cc", "int a;\nTEST_P(Transport, IsFullWhereNobodyReads) {}\n"),
            ("a.h", "TYPED_TEST(Sums, AreThoseOfTheView) {}\n"),
            ("a.cc", "TEST(WhoWaits, IsNamed) {}\n"),
            ("a.py", "def test_what_is_no_header_is_refused():\n    pass\n"),
            ("a.py", "async def test_rank_zero_waits_for_the_others():\n    pass\n"),
            ("a.py", "class TestJob:\n    def test_nobody_waits(self):\n        pass\n"),
        ],
        [
            ("a.cc", "TEST(Header, TextThatIsNoHeaderIsRefused) {}\n"),
            ("a.cc", "TEST(Sums, HeaderOfTheWholeJob) {}\nint who = TheOthers();\n"),
            ("a.cc", "// TEST(Header, WhatIsNoneIsRefused)\n"),
            ("a.h", "TYPED_TEST(Sums, SomeWorkersOfOtherJobsAreRefused) {}\n"),
            ("a.py", "def test_the_header_of_another_job():\n    what = 1\n"),
            ("a.py", "def what_a_test_needs():\n    pass\n"),
            ("a.py", "f('def test_who(): pass')\n"),
        ],
    ),
}
CASES: List[Tuple[str, str]] = [(name, path) for name, rule in RULES.items() for path in rule.paths]


@pytest.mark.parametrize(("name", "path"), CASES)
def test_a_file_names_the_thing(name: str, path: str) -> None:
    assert list(RULES[name].check(path, (ROOT / path).read_text())) == []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_holds_for_many_files(name: str) -> None:
    assert len(RULES[name].paths) > 20


@pytest.mark.parametrize("name", RULES)
def test_a_rule_refuses_its_faults_and_nothing_else(name: str) -> None:
    rule = RULES[name]
    for path, text in rule.refused:
        assert list(rule.check(path, text)), f"{name} takes {text!r}"
    for path, text in rule.taken:
        assert list(rule.check(path, text)) == [], f"{name} refuses {text!r}"


def test_all_comments_name_the_thing() -> None:
    counts = [count(path, (ROOT / path).read_text()) for path in PRODUCT]
    all_pronouns = sum(number for number, _ in counts)
    all_words = sum(words for _, words in counts)
    assert all_words > 10_000
    assert 1000 * all_pronouns / all_words <= MOST_IN_A_THOUSAND


def test_pronouns_and_words_are_counted() -> None:
    assert count("a.cc", "// One `what` of\nint a;  // those: 'others'\n") == (3, 5)
    assert count("a.md", "# Who?\n\n```\nwhat\n```\n\nIt is here.\n") == (1, 5)


def test_a_vague_name_is_told_with_its_line() -> None:
    text = "int a;\nTEST(Codecs,\n     EqualOnesAreEqual) {}\n"
    assert list(vague_test_names("a.cc", text)) == ["line 2: Codecs.EqualOnesAreEqual"]
    text = "\ndef test_whom_it_names():\n    pass\n"
    assert list(vague_test_names("a.py", text)) == ["line 2: test_whom_it_names"]

"""Pages about messages quote the code; pages about faults name real tests."""

import pathlib
import re
from typing import List, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "user").glob("troubleshooting*.md"))
FAULTS = [
    ROOT / "docs" / "operate" / f"{name}.md"
    for name in ("faults-at-start", "faults-with-mxnet", "reliability", "replacing")
]
# Longer pages are parted by question.
MOST_WORDS = 2500
ANSWERS = [
    page
    for folder in ("user", "migrate", "operate", "reference", "results")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
]
SOURCES = [
    *ROOT.glob("src/**/*.cc"),
    *ROOT.glob("3rdparty/ps-lite/src/**/*.cc"),
    *ROOT.glob("3rdparty/ps-lite/src/**/*.h"),
    *ROOT.glob("3rdparty/*.cmake"),
    *ROOT.glob("bytescheduler/**/*.py"),
]
# Put together when they are said.
JOINED = {
    "cannot be compressed to": ["cannot be", "compressed to"],
    "row_sparse arrays cannot be compressed to": ["row_sparse arrays cannot be", "compressed to"],
    "still missing": ["still", "missing"],
    "is no setting; did you mean": ["is no setting", "; did you mean"],
}
# What others say: numpy and the loader.
FOREIGN = ("module 'numpy'", "OSError:", "Check failed:")


def quoted_messages() -> List[str]:
    text = "\n".join(page.read_text() for page in PAGES)
    headings = re.findall(r"^### `+(.+?)`+(?: \(.*?\))?$", text, re.M)
    return [heading for heading in headings if not heading.startswith(FOREIGN)]


def spoken_text() -> str:
    """Return all sources, with adjacent string literals joined as the compiler joins them."""
    text = "\n".join(path.read_text() for path in SOURCES)
    return re.sub(r'"\s*(?:\n\s*|\s\+\s*)f?"', "", text)


def test_there_are_messages_to_check() -> None:
    messages = quoted_messages()
    assert len(messages) > 180
    assert [name for name in messages if messages.count(name) > 1] == []


@pytest.mark.parametrize("page", ANSWERS, ids=lambda page: page.stem)
def test_a_page_is_short_enough_to_answer_one_question(page: pathlib.Path) -> None:
    assert len(page.read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_message_has_a_cause_and_a_cure(page: pathlib.Path) -> None:
    parts = re.split(r"^### (.+)$", page.read_text(), flags=re.M)[1:]
    texts = dict(zip(parts[::2], parts[1::2]))
    incomplete = [
        heading
        for heading, text in texts.items()
        if text.count("\n**Cause.** ") != 1 or text.count("\n**Cure.** ") != 1
    ]
    assert texts
    assert not incomplete


@pytest.mark.parametrize("message", quoted_messages())
def test_the_message_is_in_the_code(message: str) -> None:
    text = spoken_text()
    pieces = [piece.strip(" ;:,") for piece in message.split("…")]
    words = [word for piece in pieces for word in JOINED.get(piece, [piece])]
    missing = [word for word in words if word not in text]
    assert not missing, f"nobody says {missing}"


def named_tests(text: str) -> List[Tuple[str, str]]:
    return re.findall(r"`(tests/[\w/-]+\.(?:py|cc))::(\w+)`", text)


@pytest.mark.parametrize("page", FAULTS, ids=lambda page: page.stem)
def test_every_fault_names_its_test(page: pathlib.Path) -> None:
    text = page.read_text()
    rows = re.findall(r"^\| .*\[\^([\w-]+)\] \|$", text, re.M)
    notes = dict(re.findall(r"^\[\^([\w-]+)\]: (.*(?:\n    .*)*)", text, re.M))
    assert len(rows) > 10
    assert [row for row in rows if not named_tests(notes[row])] == []


def test_every_row_of_a_table_of_faults_has_a_note() -> None:
    text = "\n".join(page.read_text() for page in FAULTS)
    tables = re.findall(r"^\| fault \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    rows = "".join(tables).splitlines()
    assert len(tables) > 5
    assert len(rows) > 80
    assert [row for row in rows if not re.search(r"\[\^[\w-]+\] \|$", row)] == []


@pytest.mark.parametrize(
    ("file", "name"), [test for page in FAULTS for test in named_tests(page.read_text())]
)
def test_the_test_of_a_fault_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert re.search(rf"def {name}\(|\bTEST\w*\(\w+, {name}\)", text), f"{file} has no {name}"

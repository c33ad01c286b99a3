"""The sections and table rows of the pages that are about a message, found by its whole text."""

import pathlib
import re
from typing import Iterable, List, NamedTuple

__all__ = ["Section", "sections_about"]

_SPAN = re.compile(r"``(.+?)``|`(.+?)`")
_ROW = re.compile(r"\| (.+?) \| (.+) \|")
_HEAD = "| message | cure |"
_ANY = "…"  # the parts of a heading that change from case to case
_LEAST = 8  # letters of a heading that the message has too


class Section(NamedTuple):
    """A section whose heading fits a message.

    Parameters
    ----------
    page : Path
        Where it stands.
    text : str
        The section with its heading.
    likeness : int
        How many characters of the heading the message has.
    """

    page: pathlib.Path
    text: str
    likeness: int


def _likeness(heading: str, message: str) -> int:
    """Return how many characters of a heading's messages are in `message`, in their order."""
    most = 0
    for span in _SPAN.finditer(heading):
        pieces = [piece.strip() for piece in (span[1] or span[2]).split(_ANY)]
        pattern = ".*".join(re.escape(piece) for piece in pieces)
        if re.search(pattern, message):
            most = max(most, sum(map(len, pieces)))
    return most


def _sections(text: str) -> List[str]:
    """Return the parts of a page that begin with a heading of the third level."""
    parts = re.split(r"^(?=##)", text, flags=re.M)
    return [part.strip() for part in parts if part.startswith("### ")]


def _rows(text: str) -> List[str]:
    """Return the rows of a page's tables of messages, each written as a section."""
    rows: List[str] = []
    in_table = False
    for line in text.splitlines():
        in_table = line == _HEAD or (in_table and line.startswith("|"))
        row = _ROW.fullmatch(line) if in_table and "`" in line else None
        if row is not None:
            rows.append(f"### {row[1]}\n\n**Cure.** {row[2]}")
    return rows


def sections_about(pages: Iterable[pathlib.Path], message: str) -> List[Section]:
    """Return the sections and rows about a message, the most alike first.

    Parameters
    ----------
    pages : iterable of Path
        Pages whose headings and tables have messages, with `…` where cases differ.
    message : str
        As it was printed.
    """
    one_line = " ".join(message.split())
    texts = [(page, page.read_text(encoding="utf-8")) for page in pages]
    sections = [
        Section(page, part, _likeness(part.partition("\n")[0], one_line))
        for page, text in texts
        for part in [*_sections(text), *_rows(text)]
    ]
    alike = [section for section in sections if section.likeness >= _LEAST]
    return sorted(alike, key=lambda section: -section.likeness)

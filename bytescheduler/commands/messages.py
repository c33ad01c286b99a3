"""The sections of the pages that are about a message, found by its whole text."""

import pathlib
import re
from typing import Iterable, List, NamedTuple

__all__ = ["Section", "sections_about"]

_SPAN = re.compile(r"``(.+?)``|`(.+?)`")
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


def sections_about(pages: Iterable[pathlib.Path], message: str) -> List[Section]:
    """Return the sections about a message, the most alike first.

    Parameters
    ----------
    pages : iterable of Path
        Pages whose headings have messages, with `…` where cases differ.
    message : str
        As it was printed, or a part of it.
    """
    one_line = " ".join(message.split())
    sections = [
        Section(page, part, _likeness(part.partition("\n")[0], one_line))
        for page in pages
        for part in _sections(page.read_text(encoding="utf-8"))
    ]
    alike = [section for section in sections if section.likeness >= _LEAST]
    return sorted(alike, key=lambda section: -section.likeness)

"""What pages tell their readers to type, for tests that do it."""

import pathlib
import re
from typing import List

__all__ = ["ROOT", "blocks"]

ROOT = pathlib.Path(__file__).resolve().parents[4]


def blocks(page: str, language: str) -> List[str]:
    """Return the fenced blocks of a page in that language; there must be one."""
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    assert found, f"{page} has no {language}"
    return found

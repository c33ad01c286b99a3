"""The users' names of keys, in place of the engine's numbers."""

import re
from typing import Dict

from bytescheduler.errors import UsageError

__all__ = ["KeyNames", "check_name"]

_KEY = re.compile(r"\bkey([ =])(\d+)")


def check_name(name: object) -> None:
    """Raise UsageError if a text cannot travel, as UTF-8 has no form for one of its characters.

    Such a text comes from a file name or an argument that is no UTF-8.
    """
    if not isinstance(name, str):
        return
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the name {ascii(name)} has a character that UTF-8 lacks, "
            f"{ascii(name[error.start])}; give another name",
            5,
        ) from None


class KeyNames:
    """Knows what users call the engine's keys."""

    def __init__(self) -> None:
        self._names: Dict[int, object] = {}

    def add(self, engine_key: int, key: object) -> None:
        """Let texts say `key` where the engine says `engine_key`."""
        if key != engine_key:  # else the engine's number is what users read
            self._names[engine_key] = key

    def in_text(self, text: str) -> str:
        """Return `text` with the users' names in place of the engine's numbers, where known."""

        def name(match: "re.Match[str]") -> str:
            number = int(match[2])
            return f"key{match[1]}{self._names.get(number, number)!r}"

        return _KEY.sub(name, text)

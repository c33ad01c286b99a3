"""Lists of hosts as launchers write them: Slurm's short form, and that of ``bslaunch -H``."""

import contextlib
import re
import socket
from typing import List, NamedTuple, Tuple

__all__ = ["HostSlots", "expand", "read_hosts"]

_MOST_HOSTS = 65536
_MOST_SLOTS = 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class HostSlots(NamedTuple):
    """A host that ssh reaches, and how many workers it takes in a turn.

    Parameters
    ----------
    login : str
        What ssh gets: HOST or USER@HOST.
    address : str
        The host alone, as the others reach it.
    slots : int
        At least 1.
    """

    login: str
    address: str
    slots: int


def expand(text: str) -> List[str]:
    """Return the hosts of a list in Slurm's short form: ``n[01-03,7]x,gpu1``.

    Raises
    ------
    ValueError
        The text is no such list; the message says why.
    """
    hosts: List[str] = []
    for word in _words(text):
        hosts += _expand_word(word, _MOST_HOSTS - len(hosts))
    return hosts


def _is_host(text: str) -> bool:
    """Return whether it is a name or an address in numbers."""
    if _NAME.fullmatch(text):
        return True
    address, percent, scope = text.partition("%")
    with contextlib.suppress(OSError, ValueError):
        socket.inet_pton(socket.AF_INET6, address)
        return not percent or bool(_NAME.fullmatch(scope))
    return False


def _words(text: str) -> List[str]:
    """Return what commas outside of brackets separate."""
    words, depth = [""], 0
    for char in text:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise ValueError("the brackets do not match")
        if char == "," and not depth:
            words.append("")
        else:
            words[-1] += char
    if depth:
        raise ValueError("a bracket is not closed")
    return words


def _expand_word(word: str, most: int) -> List[str]:
    names = [""]
    for part in re.split(r"(\[[^\]]*\])", word):
        ends = _numbers(part[1:-1], most) if part.startswith("[") else [part]
        if len(names) * len(ends) > most:
            raise ValueError(f"it has more than {_MOST_HOSTS} hosts")
        names = [name + end for name in names for end in ends]
    wrong = next((name for name in names if not _is_host(name)), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} is no host")
    return names


def _numbers(text: str, most: int) -> List[str]:
    """Return the numbers of ``01-03,7`` as they are written."""
    numbers: List[str] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise ValueError(f"{piece!r} is no number and no range")
        first, last = match.group(1), match.group(2) or match.group(1)
        if int(last) < int(first):
            raise ValueError(f"the range {piece} runs backwards")
        if int(last) - int(first) >= most - len(numbers):
            raise ValueError(f"it has more than {_MOST_HOSTS} hosts")
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return numbers


def read_hosts(text: str) -> List[HostSlots]:
    """Return the hosts of ``host1,user@host2:2,[fd00::1]:4``.

    Raises
    ------
    ValueError
        The text is no such list; the message says why.
    """
    return [_read_host(word) for word in text.split(",")]


def _read_host(word: str) -> HostSlots:
    user, at, rest = word.rpartition("@")
    address, slots = _split_slots(rest)
    if not _is_host(address) or (at and not _USER.fullmatch(user)):
        raise ValueError(f"{word!r} is no host; want HOST, USER@HOST or HOST:SLOTS")
    if not slots.isascii() or not slots.isdigit() or not 1 <= int(slots[:5]) <= _MOST_SLOTS:
        raise ValueError(f"{word!r}: want 1 to {_MOST_SLOTS} slots behind the colon")
    return HostSlots(f"{user}{at}{address}", address, int(slots))


def _split_slots(text: str) -> Tuple[str, str]:
    """Return the address without its brackets, and the slots; an IPv6 address has colons too."""
    match = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if match is not None:
        return match.group(1), "1" if match.group(2) is None else match.group(2)
    if text.count(":") > 1:
        return text, "1"
    address, colon, slots = text.partition(":")
    return address, slots if colon else "1"

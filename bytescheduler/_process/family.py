"""The processes that stem from one process, and which of them hear a signal meant for it."""

import contextlib
import ctypes
import os
import signal
from typing import Collection, Dict, List, NamedTuple, Sequence

__all__ = ["adopt_orphans", "members", "parent_of", "pass_on", "reap_orphans", "savers", "send"]

_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None)
# A terminal sends these to every process of a group, so programs count on it.
_OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)
# These ask for something; a program that does not know them must not end by them.
_FOR_HANDLERS = (signal.SIGUSR1, signal.SIGUSR2)
_SHELLS = ("sh", "ash", "bash", "dash", "ksh", "zsh")
_ENDED = ("Z", "X")


class _Process(NamedTuple):
    """A process as the kernel describes it."""

    number: int
    state: str
    parent: int
    session: int
    name: str
    caught: int

    def catches(self, number: int) -> bool:
        """Return whether it has a handler for that signal."""
        return bool(self.caught >> (number - 1) & 1)

    @property
    def is_shell(self) -> bool:
        """True if its name is that of a shell, which waits for other programs."""
        return self.name in _SHELLS


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(own: int) -> None:
    """Give back the numbers of adopted processes that have ended; `own` is waited for elsewhere."""
    for child in _children(_table(), os.getpid()):
        if child.number != own and child.state in _ENDED:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.number, os.WNOHANG)


def members(leaders: Sequence[int], without: Collection[int] = ()) -> List[int]:
    """Return the processes that run below `leaders` or in their sessions, without these.

    What stems from a process in `without` is left out too.
    """
    table = _table()
    for each in without:
        table.pop(each, None)
    found = [each.number for leader in leaders for each in _members(table, leader)]
    return [each for each in found if each not in leaders]


def savers(leaders: Sequence[int], number: int, without: Collection[int] = ()) -> List[int]:
    """Return those of the `members` that have a handler for signal `number`."""
    table = _table()
    left = members(leaders, without)
    return [each for each in left if each in table and table[each].catches(number)]


def pass_on(leaders: Sequence[int], number: int) -> None:
    """Signal the programs that stem from each leader: itself, or what it runs if it is a shell.

    All are chosen before any is signalled: a program that has heard it may let the others end.

    A shell without a trap would end at once, before the program that saves, and one with a trap
    waits for that program.  What a program starts is its own matter.  A signal that ends what does
    not handle it goes to programs that do, if there are any.  All processes are signalled if no
    program handles the signal, or if a terminal would do so.
    """
    table = _table()
    send([each.number for leader in leaders for each in _hearers(table, leader, number)], number)


def _hearers(table: Dict[int, _Process], leader: int, number: int) -> List[_Process]:
    programs = _programs(table, table[leader]) if leader in table else []
    hearing = [each for each in programs if each.catches(number)]
    if not hearing or number in _OF_TERMINALS:
        return _members(table, leader)
    if number in _FOR_HANDLERS:
        return hearing
    return [each for each in programs if each.catches(number) or not each.is_shell]


def send(processes: Sequence[int], number: int) -> None:
    """Signal those of `processes` that are there."""
    for each in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, number)


def _members(table: Dict[int, _Process], leader: int) -> List[_Process]:
    """Return parents before children: a shell must not see its program end before itself."""
    found: Dict[int, _Process] = {}
    waiting = [table[leader]] if leader in table else []
    waiting += [each for each in table.values() if each.session == leader]
    while waiting:
        process = waiting.pop(0)
        if process.number not in found:
            found[process.number] = process
            waiting += _children(table, process.number)
    return [each for each in found.values() if each.state not in _ENDED]


def _children(table: Dict[int, _Process], parent: int) -> List[_Process]:
    return [each for each in table.values() if each.parent == parent]


def _programs(table: Dict[int, _Process], process: _Process) -> List[_Process]:
    """Return `process` and, as long as these are shells, what stems from it."""
    found = [process]
    if process.is_shell or process.state in _ENDED:
        for child in _children(table, process.number):
            found += _programs(table, child)
    return found


def _table() -> Dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                found[int(name)] = _read(int(name))
    return found


def parent_of(number: int) -> int:
    """Return the parent of a process; 0 if it has none that can be seen."""
    try:
        return _read(number).parent
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


def _read(number: int) -> _Process:
    with open(f"/proc/{number}/stat", errors="replace") as file:
        head, _, tail = file.read().rpartition(")")
    state, parent, _, session = tail.split()[:4]
    with open(f"/proc/{number}/status", errors="replace") as file:
        caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    name = head.partition("(")[2]
    return _Process(number, state, int(parent), int(session), name, int(caught, 16))

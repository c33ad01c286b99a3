"""The descendants of a process, and which of them hear a signal meant for it."""

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
    """Become the parent of every descendant whose own parent ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(kept: int) -> None:
    """Give back the numbers of adopted processes that have ended, except `kept`.

    The caller waits for `kept` itself.
    """
    for child in _children(_table(), os.getpid()):
        if child.number != kept and child.state in _ENDED:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.number, os.WNOHANG)


def members(leaders: Sequence[int], without: Collection[int] = ()) -> List[int]:
    """Return the processes that run below `leaders` or in their sessions, without these.

    Descendants of a process in `without` are left out too.
    """
    table = _table()
    for process in without:
        table.pop(process, None)
    family = [process.number for leader in leaders for process in _members(table, leader)]
    return [process for process in family if process not in leaders]


def savers(leaders: Sequence[int], number: int, without: Collection[int] = ()) -> List[int]:
    """Return the `members` that have a handler for signal `number`."""
    table = _table()
    left = members(leaders, without)
    return [process for process in left if process in table and table[process].catches(number)]


def pass_on(leaders: Sequence[int], number: int) -> None:
    """Signal the programs of each leader: itself, or the programs that it runs if it is a shell.

    All are chosen before any is signalled: a program that has heard it may end its peers.

    A shell without a trap would end at once, before the program that saves; a shell with a trap
    waits for that program.  A program's children are its own matter.  A signal that ends programs
    without a handler goes to programs with a handler, if there are any.  All processes are
    signalled if no program handles the signal, or if a terminal would do so.
    """
    table = _table()
    send(
        [process.number for leader in leaders for process in _hearers(table, leader, number)],
        number,
    )


def _hearers(table: Dict[int, _Process], leader: int, number: int) -> List[_Process]:
    programs = _programs(table, table[leader]) if leader in table else []
    hearing = [program for program in programs if program.catches(number)]
    if not hearing or number in _OF_TERMINALS:
        return _members(table, leader)
    if number in _FOR_HANDLERS:
        return hearing
    return [program for program in programs if program.catches(number) or not program.is_shell]


def send(processes: Sequence[int], number: int) -> None:
    """Signal `processes`; processes that have ended are passed over."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _members(table: Dict[int, _Process], leader: int) -> List[_Process]:
    """Return parents before children: a shell must not see its program end before itself."""
    family: Dict[int, _Process] = {}
    waiting = [table[leader]] if leader in table else []
    waiting += [member for member in table.values() if member.session == leader]
    while waiting:
        process = waiting.pop(0)
        if process.number not in family:
            family[process.number] = process
            waiting += _children(table, process.number)
    return [member for member in family.values() if member.state not in _ENDED]


def _children(table: Dict[int, _Process], parent: int) -> List[_Process]:
    return [process for process in table.values() if process.parent == parent]


def _programs(table: Dict[int, _Process], process: _Process) -> List[_Process]:
    """Return `process` and, below shells, the programs that it runs."""
    programs = [process]
    if process.is_shell or process.state in _ENDED:
        for child in _children(table, process.number):
            programs += _programs(table, child)
    return programs


def _table() -> Dict[int, _Process]:
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                table[int(name)] = _read(int(name))
    return table


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

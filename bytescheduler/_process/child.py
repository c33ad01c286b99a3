"""One process of a job on this host: its start, its end, and what it started itself."""

import contextlib
import ctypes
import os
import signal
import subprocess
from typing import Dict, List, Optional, Tuple

__all__ = ["Child", "die_with", "signal_name"]

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before threads and forks


def signal_name(number: int) -> str:
    """Return "SIGTERM" for 15, also for a signal that Python has no name for."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def die_with(parent: int) -> None:
    """Take care, in a child before exec, that even SIGKILL for its parent ends it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Child:
    """A child process in a process group of its own; made by `start`.

    Once it has ended it stays a zombie until `reap`, so that nobody else can get its number
    meanwhile.  `wait` may run on a thread of its own, everything else on the one that made it.
    """

    def __init__(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.code: Optional[int] = None  # -n for signal n; None while it runs
        self._process = process

    @classmethod
    def start(
        cls, name: str, command: List[str], env: Dict[str, str], pass_fds: Tuple[int, ...] = ()
    ) -> "Tuple[Child, int]":
        """Start `command` without input; return it, and the descriptor of all its output.

        Raises
        ------
        OSError
            It cannot be run.
        """
        us = os.getpid()
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: die_with(us),
            pass_fds=pass_fds,
        )
        assert process.stdout is not None
        output = os.dup(process.stdout.fileno())
        process.stdout.close()
        return cls(name, process), output

    @property
    def is_worker(self) -> bool:
        """Whether this is one of the job's workers."""
        return self.name.startswith("worker")

    @property
    def shell_code(self) -> int:
        """The exit code as shells have it: 128 + n for signal n.  Only when it has ended."""
        assert self.code is not None
        return 128 - self.code if self.code < 0 else self.code

    def describe(self) -> str:
        """Return how it ended.  Only when it has."""
        assert self.code is not None
        if self.code < 0:
            return f"{self.name} was ended by {signal_name(-self.code)}"
        return f"{self.name} ended with exit code {self.code}"

    def wait(self) -> None:
        """Block until the process has ended."""
        info = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert info is not None
        self.code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def signal_group(self, number: int) -> None:
        """Signal the process and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def reap(self) -> None:
        """Give the number of a process that has ended back; never blocks."""
        if self.code is not None:
            self._process.wait()

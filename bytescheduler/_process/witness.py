"""Finds out whether a signal came to this process alone, or to others in its place too.

Batch systems signal every process of a job, and `kill -TERM -GROUP` every process of a group.  The
kernel does not tell a process which of these it was.  So a second process waits for the same
signals and reports them.
"""

import contextlib
import ctypes
import os
import select
import signal
import struct
import time
from types import TracebackType
from typing import Collection, List, NoReturn, Optional, Tuple, Type

__all__ = ["Witness"]

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded before threads and forks
_REPORT = struct.Struct("=id")  # a signal, and the moment when it came
# A signal to many comes to all within this time.
_TOGETHER_S = 0.2


class Witness:
    """A process that signals meant for this one alone do not reach; ended at the end of `with`.

    Make it before the first thread.  Where it cannot be started, each signal counts as one for this
    process alone.

    Parameters
    ----------
    numbers : collection of int
        The signals to report.
    session : bool
        It gets a session of its own, so that only signals for every process reach it.  Otherwise
        those for the process group do too.
    """

    def __init__(self, numbers: Collection[int], *, session: bool) -> None:
        self._reports: List[Tuple[int, float]] = []
        self._pid = 0
        self._pipe = -1
        with contextlib.suppress(OSError):  # too few processes or descriptors: it does without
            self._start(numbers, session=session)

    def _start(self, numbers: Collection[int], *, session: bool) -> None:
        us = os.getpid()
        self._pipe, report = os.pipe()
        os.set_blocking(self._pipe, False)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if not self._pid:
                _witness(us, numbers, report, session=session)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(report)

    def has_heard(self, number: int) -> bool:
        """Return whether `number`, which this process has just got, came to the witness too.

        Blocks for a moment, because the two may get it one after the other.
        """
        if not self._pid:
            return False
        now = time.monotonic()
        since, until = now - _TOGETHER_S, now + _TOGETHER_S
        while True:
            recent = [heard for heard in self._reports if heard[0] == number and heard[1] >= since]
            if recent:
                self._reports = [heard for heard in self._reports if heard[0] != number]
                return True
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0] or not self._read():
                return False

    def _read(self) -> bool:
        """Take a report; return False if the witness has ended."""
        with contextlib.suppress(BlockingIOError):
            text = os.read(self._pipe, _REPORT.size)  # written at once, so it comes at once
            if not text:
                return False
            self._reports.append(_REPORT.unpack(text))
        return True

    def __enter__(self) -> "Witness":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = 0
        if self._pipe >= 0:
            os.close(self._pipe)


def _witness(parent: int, numbers: Collection[int], report: int, *, session: bool) -> NoReturn:
    """Report signals until the parent ends; all are blocked here."""
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if session:
            os.setsid()
        # Readers of our output, and peers, must not wait for this process.
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
            if descriptor < 3:
                os.dup2(nothing, descriptor)
            elif descriptor not in (report, nothing):
                with contextlib.suppress(OSError):  # that of the list itself
                    os.close(descriptor)
        while os.getppid() == parent:
            number = signal.sigwaitinfo(numbers).si_signo
            os.write(report, _REPORT.pack(number, time.monotonic()))
    finally:
        os._exit(0)

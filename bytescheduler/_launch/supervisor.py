"""Watches the processes of a job, and ends them all.

`bslaunch --local` and `bslaunch -H` are built on it; each starts the processes in its own way.
"""

import abc
import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from bytescheduler._launch.launcher import Exited, Failed, Interrupt, Launcher, Listening
from bytescheduler._process.child import Child, signal_name
from bytescheduler._process.output import Printer
from bytescheduler._process.say import plain, say
from bytescheduler._process.witness import Witness

__all__ = ["Job", "Over", "Run", "supervise"]

_LOOK_S = 0.05  # small models train many steps meanwhile
_WAIT_LOOK_S = 0.5  # at what workers say once the job is over
_FAMILY_LOOK_S = 0.1  # at what workers that have ended left behind
# A process that fails may do so because of another, which has not ended yet.
_CAUSE_S = 2.0
# For scheduler node and servers, once no worker is left: until one ends, and for all.  A lost
# worker is noticed within a second.
_NODES_ALONE_S = 1.5
_NODES_S = 5.0
_NODES_AFTER_GOOD_S = 10.0
_TERM_S = 5.0  # between SIGTERM and SIGKILL
_KILL_S = 1.0  # between SIGTERM and SIGKILL for what had its time to end
# Launchers signal a process and then its group, so a second signal within this time is the first.
_REPEAT_S = 0.5
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
_LAST_WORDS_S = 2.0  # for output that is still in the pipes
_TIMED_OUT = 124  # the code of timeout(1)


@dataclasses.dataclass(frozen=True)
class Job:
    """A job to run.

    Parameters
    ----------
    command : sequence of str
        The command of each worker.
    num_workers, num_servers : int
        The number of each.  Without servers the worker processes host them.
    node : sequence of str
        The command that runs the role of DMLC_ROLE, scheduler or server.  The scheduler node gets
        ``--port-fd N`` too and writes its port and a newline to that descriptor.
    env : dict
        Variables for every process, on top of this process's own.
    timeout : float, optional
        Seconds after which the job is ended with exit code 124.
    grace : float
        Seconds that workers have to save and end after a signal, or after a failure of another.
    quiet : bool
        No prefixes, no remarks, and only warnings in the log.
    enough : callable, optional
        Called often, on a thread of its own.  Once it returns True the job is ended, and this is a
        good end: what its processes say about that is not shown.
    """

    command: Sequence[str]
    num_workers: int
    num_servers: int
    node: Sequence[str]
    env: Dict[str, str] = dataclasses.field(default_factory=dict)
    timeout: Optional[float] = None
    grace: float = 25.0
    quiet: bool = False
    enough: Optional[Callable[[], bool]] = None


def supervise(job: Job, make: "Callable[[Job, Witness], Run]") -> int:
    """Make a run of `job` and return its exit code for the shell; only on the main thread."""
    numbers = [
        number
        for number in (*_STOPPING, *_PASSED_ON)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    with Witness(numbers, session=True) as witness:
        return make(job, witness).to_the_end()


class _Signalled(Interrupt):
    def __init__(self, number: int) -> None:
        self.number = number


class _Enough:
    """The event that the job has done enough."""


class Over(Exception):
    """The job is over, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _LastWords:
    """The tracebacks with which workers ended, to be printed behind all else; any thread calls it.

    Parameters
    ----------
    write : callable
        Writes lines behind a prefix.
    """

    def __init__(self, write: Callable[[bytes, List[bytes]], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._kept: Dict[Child, Tuple[bytes, List[bytes]]] = {}
        self._let_go: Set[Child] = set()

    def keep(self, worker: Child, prefix: bytes, lines: List[bytes]) -> None:
        """Keep the last lines of a worker, unless it ended well."""
        with self._lock:
            if worker not in self._let_go:
                self._kept[worker] = (prefix, lines)
                return
        self._write(prefix, lines)

    def let_go(self, worker: Child) -> None:
        """Print at once with which lines this worker ends, which ended well."""
        with self._lock:
            self._let_go.add(worker)
            kept = self._kept.pop(worker, None)
        if kept is not None:
            self._write(*kept)

    def print_all(self, cause: Optional[Child]) -> None:
        """Print all that is kept, and that of `cause` behind the rest."""
        with self._lock:
            workers = sorted(self._kept, key=lambda worker: worker is cause)
        for worker in workers:
            self.let_go(worker)


class Run(abc.ABC):
    """One run of a job; everything but `Launcher.put` belongs to the main thread.

    Parameters
    ----------
    job : Job
        The job.
    witness : Witness
        It has heard signals since before the first thread.
    launcher : Launcher
        Starts the processes, and is closed at the end.
    """

    def __init__(self, job: Job, witness: Witness, launcher: Launcher) -> None:
        self._job = job
        self._witness = witness
        self._launcher = launcher
        self._over = threading.Event()
        self._printer = Printer(
            sys.stdout.fileno(),
            prefixes=not job.quiet,
            colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
            on_broken=lambda: self._launcher.put(_Signalled(signal.SIGPIPE)),
            on_lost=lambda reason: self._say(
                f"cannot write to standard output: {reason}; lines of the job's output are lost"
            ),
        )
        self._last_words = _LastWords(self._printer.write_all)
        self._signal: Optional[int] = None  # the first that stops the job
        self._signalled = 0.0
        self._passed_on: Dict[int, float] = {}  # when each came last
        self._readers: List[threading.Thread] = []
        self._deadline = None if job.timeout is None else time.monotonic() + job.timeout

    def to_the_end(self) -> int:
        with self._signals():
            try:
                self._start_all()
                if self._job.enough is not None:
                    threading.Thread(target=self._watch, args=(self._job.enough,)).start()
                self._supervise()
                return self._finish()
            except Over as over:
                return over.code
            finally:
                self._over.set()
                self._end_all()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Make events of the signals that stop the job or that workers may want to hear.

        Those that we were told to ignore (`nohup bslaunch ... &`) stay ignored.
        """
        numbers = [
            number
            for number in (*_STOPPING, *_PASSED_ON, signal.SIGQUIT)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        before = [
            signal.signal(number, lambda got, _: self._launcher.put(_Signalled(got)))
            for number in numbers
        ]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before):
                signal.signal(number, handler)

    # -- starting ------------------------------------------------------------------------------

    @abc.abstractmethod
    def _start_all(self) -> None:
        """Start the processes.  Raises `Over` where one cannot be started."""

    def _show(self, child: Child, output: int) -> None:
        """Copy what comes from the descriptor, which is closed at its end, behind its prefix."""
        index = self._launcher.children.index(child)
        prefix = self._printer.prefix(child.name, index)

        def keep(lines: List[bytes]) -> None:
            self._last_words.keep(child, prefix, lines)

        on_last = keep if child in self._launcher.workers else None
        arguments = (prefix, output, on_last)
        reader = threading.Thread(target=self._printer.copy, args=arguments, daemon=True)
        reader.start()
        self._readers.append(reader)

    def _await_port(self) -> None:
        event = self._next_event()
        while not isinstance(event, Listening):
            event = self._next_event()
        if not event.port:
            self._await_nodes(self._job.grace)
            self._say("the scheduler node ended before it listened")
            node = self._launcher.children[0]
            raise Over(1 if node.code is None else node.shell_code or 1)

    # -- watching ------------------------------------------------------------------------------

    def _watch(self, enough: Callable[[], bool]) -> None:
        while not self._over.wait(_LOOK_S):
            if enough():
                self._launcher.put(_Enough())
                return

    def _supervise(self) -> None:
        """Return when every worker has ended well."""
        working = self._job.num_workers
        while working:
            event = self._next_event()
            if isinstance(event, Exited) and event.child in self._launcher.workers:
                working -= 1
                self._leave_for(event.child)

    def _next_event(self) -> object:
        """Return the next event that does not end the job; raise `Over` at one that does."""
        event = self._await_event()
        if event is None:
            self._say(f"not finished after {self._job.timeout:g} s; ending the job")
            raise Over(_TIMED_OUT)
        if isinstance(event, _Signalled):
            if self._hear(event.number):
                raise Over(128 + event.number)
            if self._signal is not None:
                raise Over(self._stop(self._signal))
        if isinstance(event, _Enough):
            self._remark("enough steps; ending the job")
            self._printer.mute()
            raise Over(0)
        if isinstance(event, Failed):
            self._printer.await_ends()  # the job failed, and its processes end
        if isinstance(event, Exited) and not event.child.code:
            self._last_words.let_go(event.child)
        if isinstance(event, Exited) and event.child.code:
            raise Over(self._fail(event.child))
        return event

    def _await_event(self) -> Optional[object]:
        """Return the next event, or None when the time-out has passed."""
        children = self._launcher.children  # the scheduler node is the first
        while True:
            end = self._deadline
            if children and children[0].code == 0:  # a worker may wait for it in vain
                self._require_no_wait()
                soon = time.monotonic() + _WAIT_LOOK_S
                end = soon if end is None else min(soon, end)
            event = self._launcher.next_event(end)
            if event is not None or end == self._deadline:
                return event

    def _require_no_wait(self) -> None:
        """End the job if a worker makes a store where the others have ended in good order."""
        for worker in self._running():
            if self._waits(worker):
                self._say(
                    f"{worker.name} makes a store, but the job is over: it ends with the last "
                    "store of each worker; make the next store before that one is closed, or start "
                    "each trial by a bslaunch of its own"
                )
                raise Over(1)

    @abc.abstractmethod
    def _waits(self, worker: Child) -> bool:
        """Return whether it said last that it waits for the others."""

    @abc.abstractmethod
    def _leave_for(self, worker: Child) -> None:
        """Leave the job for a worker that ended well, if it skipped that."""

    @abc.abstractmethod
    def _tell_code(self, worker: Child, code: int) -> None:
        """Tell the job the code with which a worker ended, if it left without a reason."""

    # -- signals -------------------------------------------------------------------------------

    def _hear(self, number: int) -> bool:
        """Let the workers hear a signal; return whether it ends the job at once."""
        now = time.monotonic()
        if number in _PASSED_ON:
            repeated = now < self._passed_on.get(number, -_REPEAT_S) + _REPEAT_S
            self._passed_on[number] = now
            if not repeated:
                self._remark(f"{signal_name(number)}: passed on to the workers")
                self._pass_on(number)
            return False
        if self._signal is not None and now < self._signalled + _REPEAT_S:
            return False
        repeated = self._signal is not None
        if repeated or number not in _STOPPING or not self._running():
            self._remark(f"stopped by {signal_name(number)}")
            return True
        self._signal, self._signalled = number, now
        if number == signal.SIGINT:
            self._printer.shorten_interrupts()
        self._remark(
            f"{signal_name(number)}: the workers have {self._job.grace:g} s to save and end; "
            "a second signal ends them now"
        )
        self._pass_on(number)
        return False

    def _pass_on(self, number: int) -> None:
        if not self._witness.has_heard(number):
            self._signal_workers(number)

    @abc.abstractmethod
    def _signal_workers(self, number: int) -> None:
        """Let the programs of all workers hear a signal."""

    def _running(self) -> List[Child]:
        return [worker for worker in self._launcher.workers if worker.code is None]

    def _stop(self, number: int) -> int:
        """Wait for workers that have heard a signal; return the exit code of the job."""
        if not self._await_workers():
            return 128 + number
        self._end_nodes()
        failed = [child for child in self._launcher.failed if child in self._launcher.workers]
        if not failed:
            return 0
        # Others may have failed because of one that the signal ended.
        first = next((child for child in failed if child.code == -number), failed[0])
        self._say(first.describe())
        return first.shell_code

    # -- failure and good end ------------------------------------------------------------------

    def _fail(self, first: Child) -> int:
        """Let the others find out and say so themselves; return the exit code of the cause."""
        if first in self._launcher.workers and first.code is not None and first.code > 0:
            self._tell_code(first, first.code)
        self._printer.await_ends()
        self._await_cause(first)
        first_cause = self._launcher.cause()
        blamed = self._launcher.blamed()
        if blamed is None or blamed is first_cause:
            self._say(f"{self._launcher.describe(first_cause)}; ending the job")
        else:
            self._say(f"the job failed: {plain(self._launcher.verdict)}; ending the job")
        if self._await_workers():
            self._end_nodes()
        cause = self._launcher.cause()
        if cause is not first_cause:
            self._say(self._launcher.describe(cause))
        return cause.shell_code

    def _await_cause(self, first: Child) -> None:
        """Wait a moment for the process that failed before `first`, but has not ended yet."""
        launcher = self._launcher
        deadline = time.monotonic() + min(_CAUSE_S, self._job.grace)
        killed = first.code is not None and first.code < 0 and first.code != -signal.SIGABRT

        def is_known() -> bool:
            blamed = launcher.blamed()
            return bool(launcher.verdict) and (blamed is None or blamed.code is not None)

        for event in launcher.events_until(lambda: killed or is_known(), deadline):
            if isinstance(event, _Signalled) and self._hear(event.number):
                raise Over(128 + event.number)

    def _await_workers(self) -> bool:
        """Wait until no worker is left; False: the grace is over, or a signal ends the wait."""
        launcher = self._launcher
        begin = time.monotonic()
        while True:
            begin = max(begin, self._signalled)
            now, end = time.monotonic(), begin + self._job.grace
            if not self._running() and not self._is_anything_saving():
                return True
            if now >= end:
                names = ", ".join(child.name for child in self._running())
                self._remark(f"{self._job.grace:g} s are over; ending {names or 'the rest'}")
                return False
            left = end if self._running() else min(end, now + _FAMILY_LOOK_S)
            event = launcher.next_event(left)
            if isinstance(event, _Signalled) and self._hear(event.number):
                return False

    def _is_anything_saving(self) -> bool:
        """Return whether a program still saves whose shell the signal has ended."""
        if self._signal is None:
            return False
        ended = [worker for worker in self._launcher.workers if worker.code == -self._signal]
        return self._save(ended, self._signal)

    @abc.abstractmethod
    def _save(self, ended: Sequence[Child], number: int) -> bool:
        """Return whether a program below those of `ended`, which that signal ended, still saves."""

    def _finish(self) -> int:
        """All workers ended well: servers and scheduler node end by themselves."""
        patience = min(self._job.grace, _NODES_AFTER_GOOD_S)
        number = self._await_nodes(patience)
        if number is not None:
            return 128 + number
        for child in self._launcher.children:
            if child.code is None:
                self._say(
                    f"{child.name} still waits {patience:g} s after the last worker ended; "
                    "ending it (did every worker use the store?)"
                )
                return 1
            if child.code:
                self._say(child.describe())
                return child.shell_code
        return 0

    def _end_nodes(self) -> None:
        """Let scheduler node and servers end by themselves, or end them if the job never began."""
        if self._await_nodes(_NODES_ALONE_S) is not None:
            return
        launcher = self._launcher
        nodes = [child for child in launcher.children if child not in launcher.workers]
        running = [node for node in nodes if node.code is None]
        if running == nodes and not launcher.verdict:
            for node in nodes:
                node.signal_group(signal.SIGTERM)
        self._await_nodes(_NODES_S)

    def _await_nodes(self, seconds: float) -> Optional[int]:
        """Return when all have ended or `seconds` have passed; at a signal that counts, that."""
        launcher = self._launcher
        deadline = time.monotonic() + min(seconds, self._job.grace)
        while True:
            signalled = launcher.await_ends(launcher.children, deadline)
            if not isinstance(signalled, _Signalled):
                return None
            if self._hear(signalled.number):
                return signalled.number

    # -- ending --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        # Another Ctrl-C cuts this short.
        self._launcher.end_all(_TERM_S if self._signal is None else _KILL_S)
        deadline = time.monotonic() + _LAST_WORDS_S
        for reader in self._readers:
            reader.join(timeout=max(0.0, deadline - time.monotonic()))
        self._last_words.print_all(self._launcher.cause() if self._launcher.failed else None)
        self._launcher.close()

    def _remark(self, text: str) -> None:
        if not self._job.quiet:
            self._say(text)

    @staticmethod
    def _say(text: str) -> None:
        say(f"bslaunch: {text}")

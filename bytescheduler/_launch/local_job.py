"""Runs a whole job on this host: a scheduler node, servers and workers as child processes."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Union

from bytescheduler._launch.launcher import Exited, Interrupt, Launcher, Listening
from bytescheduler._process.child import Child, Streams, signal_name
from bytescheduler._process.output import Printer
from bytescheduler._process.say import plain, say

__all__ = ["Job", "prefer_native", "run"]

_LOOK_S = 0.5
_LAST_WORDS_S = 2.0  # for output that is still in the pipes
_TIMED_OUT = 124  # the code of timeout(1)
_CANNOT_RUN = 126  # the code of shells
_MERGED = Streams(subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT)


@dataclasses.dataclass(frozen=True)
class Job:
    """A job to run.

    Parameters
    ----------
    command : sequence of str
        The command of each worker.
    num_workers, num_servers : int
        The number of each; at least 1.
    node : sequence of str
        The command that runs the role of DMLC_ROLE, scheduler or server.  The scheduler node gets
        ``--port-fd N`` too and writes its port and a newline to that descriptor.
    env : dict
        Variables for every process, on top of this process's own.
    timeout : float, optional
        Seconds after which the job is ended with exit code 124.
    grace : float
        Seconds to end by themselves: for the others after a failure, and for servers and
        scheduler node after the last worker.
    quiet : bool
        No prefixes, no remarks, and only warnings in the log.
    enough : callable, optional
        Called twice a second, on a thread of its own.  Once it returns True the job is ended, and
        this is a good end.
    """

    command: Sequence[str]
    num_workers: int
    num_servers: int
    node: Sequence[str]
    env: Dict[str, str] = dataclasses.field(default_factory=dict)
    timeout: Optional[float] = None
    grace: float = 10.0
    quiet: bool = False
    enough: Optional[Callable[[], bool]] = None


def prefer_native(env: Dict[str, str]) -> None:
    """Let a worker use the servers that bslaunch started, unless its settings say otherwise."""
    if env.get("BYTESCHEDULER_BACKEND", "") in ("", "auto"):
        env["BYTESCHEDULER_BACKEND"] = "native"


def run(job: Job) -> int:
    """Run `job` to its end and return the exit code for the shell; only on the main thread.

    The first process that fails decides the code (128 + n if signal n ended it); a signal to this
    process gives 128 + n, the time-out 124.  No process of the job is left when this returns.
    """
    return _Run(job).to_the_end()


class _Signalled(Interrupt):
    def __init__(self, number: int) -> None:
        self.number = number


class _Enough:
    """The event that the job has done enough."""


class _Over(Exception):
    """The job is over, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Run:
    """One run of a job; everything but `Launcher.put` belongs to the main thread."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._launcher = Launcher(job.num_workers, job.num_servers, self._base_env(), sessions=True)
        self._over = threading.Event()
        self._printer = Printer(
            sys.stdout.fileno(),
            prefixes=not job.quiet,
            colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
            on_broken=lambda: self._launcher.put(_Signalled(signal.SIGPIPE)),
            on_lost=lambda why: self._say(
                f"cannot write to standard output: {why}; lines of the job's output are lost"
            ),
        )
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
            except _Over as over:
                return over.code
            finally:
                self._over.set()
                self._end_all()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Make events of the signals that ask us to end.

        Those that we were told to ignore (`nohup bslaunch ... &`) stay ignored.
        """
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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

    def _base_env(self) -> Dict[str, str]:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self._job.quiet:
            env.setdefault("BYTESCHEDULER_LOG_LEVEL", "warning")
        return env

    def _start_all(self) -> None:
        self._start("scheduler", "scheduler", self._job.node, self._job.env)
        self._await_port()
        for index in range(self._job.num_servers):
            self._start("server", f"server {index}", self._job.node, self._job.env)
        worker_env = self._worker_env()
        for index in range(self._job.num_workers):
            self._start("worker", f"worker {index}", self._job.command, worker_env)

    def _worker_env(self) -> Dict[str, str]:
        env = {**self._base_env(), **self._job.env}
        prefer_native(env)
        own = {**self._job.env, "BYTESCHEDULER_BACKEND": env["BYTESCHEDULER_BACKEND"]}
        if "OMP_NUM_THREADS" in env or self._job.num_workers == 1:
            return own
        # No more threads than there are cores.
        threads = max(1, len(os.sched_getaffinity(0)) // self._job.num_workers)
        self._remark(f"OMP_NUM_THREADS={threads} for each worker; set it yourself to change it")
        return {**own, "OMP_NUM_THREADS": str(threads)}

    def _start(self, role: str, name: str, command: Sequence[str], env: Dict[str, str]) -> None:
        try:
            if role == "scheduler":
                child = self._launcher.start_scheduler(command, env=env, streams=_MERGED)
            else:
                child = self._launcher.start(role, command, name=name, env=env, streams=_MERGED)
        except OSError as error:
            self._say(f"cannot run {plain(command[0])}: {error.strerror}")
            raise _Over(_CANNOT_RUN) from error
        prefix = self._printer.prefix(name, len(self._launcher.children) - 1)
        reader = threading.Thread(
            target=self._printer.copy, args=(prefix, child.take_output()), daemon=True
        )
        reader.start()
        self._readers.append(reader)

    def _await_port(self) -> None:
        event = self._next_event()
        while not isinstance(event, Listening):
            event = self._next_event()
        if not event.port:
            self._await_exits(self._job.grace)
            self._say("the scheduler node ended before it listened")
            raise _Over(self._launcher.children[0].shell_code or 1)

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

    def _next_event(self) -> Union[Exited, Listening]:
        """Return the next event that does not end the job; raise `_Over` at one that does."""
        event = self._launcher.next_event(self._deadline)
        if event is None:
            self._say(f"not finished after {self._job.timeout:g} s; ending the job")
            raise _Over(_TIMED_OUT)
        if isinstance(event, _Signalled):
            raise _Over(self._stopped_by(event.number))
        if isinstance(event, _Enough):
            self._remark("enough steps; ending the job")
            raise _Over(0)
        assert isinstance(event, (Exited, Listening))
        if isinstance(event, Exited) and event.child.code:
            raise _Over(self._fail(event.child))
        return event

    def _stopped_by(self, number: int) -> int:
        self._remark(f"stopped by {signal_name(number)}")
        return 128 + number

    def _fail(self, first: Child) -> int:
        """Let the others find out and say so themselves; return the exit code of the cause."""
        self._say(f"{first.describe()}; ending the job")
        self._await_exits(self._job.grace)
        cause = self._launcher.cause()
        if cause is not first:
            self._say(cause.describe())
        return cause.shell_code

    def _finish(self) -> int:
        """All workers ended well: servers and scheduler node end by themselves."""
        number = self._await_exits(self._job.grace)
        if number is not None:
            return self._stopped_by(number)
        for child in self._launcher.children:
            if child.code is None:
                self._say(
                    f"{child.name} still waits {self._job.grace:g} s after the last worker ended; "
                    "ending it (did every worker use the store?)"
                )
                return 1
            if child.code:
                self._say(child.describe())
                return child.shell_code
        return 0

    def _await_exits(self, seconds: float) -> Optional[int]:
        """Return when all have ended, `seconds` have passed, or at a signal, its number."""
        launcher = self._launcher
        signalled = launcher.await_ends(launcher.children, time.monotonic() + seconds)
        return signalled.number if isinstance(signalled, _Signalled) else None

    # -- ending --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        self._launcher.end_all()  # a second Ctrl-C cuts this short
        deadline = time.monotonic() + _LAST_WORDS_S
        for reader in self._readers:
            reader.join(timeout=max(0.0, deadline - time.monotonic()))
        self._launcher.close()

    def _remark(self, text: str) -> None:
        if not self._job.quiet:
            self._say(text)

    @staticmethod
    def _say(text: str) -> None:
        say(f"bslaunch: {text}")

"""Runs a whole job on this host: a scheduler node, servers and workers as child processes."""

import contextlib
import dataclasses
import os
import queue
import signal
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from bytescheduler._process.child import Child, signal_name
from bytescheduler._process.output import Printer
from bytescheduler._process.say import plain, say

__all__ = ["FIXED", "Job", "prefer_native", "run"]

# Set for every process, or left out because it would be the same for all of them.
FIXED = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_PORT",
    "DMLC_RANK",
)

_LOOK_S = 0.5
_NOTICE_S = 1.0  # for the scheduler node to tell the others that the job ends
_TERM_S = 5.0  # between SIGTERM and SIGKILL
_LAST_WORDS_S = 2.0  # for output that is still in the pipes
_TIMED_OUT = 124  # as timeout(1) has it
_CANNOT_RUN = 126  # as shells have it


@dataclasses.dataclass(frozen=True)
class Job:
    """What to run.

    Parameters
    ----------
    command : sequence of str
        What each worker runs.
    num_workers, num_servers : int
        How many of each; at least 1.
    node : sequence of str
        What runs the role of DMLC_ROLE, scheduler or server.  The scheduler node gets
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
        Asked twice a second, on a thread of its own; once it is true the job is ended, and this
        is a good end.
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


class _Exited(NamedTuple):
    child: Child


class _Listening(NamedTuple):
    """The scheduler node's port; empty if it ended without telling one."""

    port: str


class _Signalled(NamedTuple):
    number: int


class _Enough(NamedTuple):
    """What the job was run for is done."""


class _Over(Exception):
    """The job is over, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Run:
    """One run of a job; everything but `_events` belongs to the main thread."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # A SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[Union[_Exited, _Listening, _Signalled, _Enough]] = (
            queue.SimpleQueue()
        )
        self._over = threading.Event()
        self._printer = Printer(
            sys.stdout.fileno(),
            prefixes=not job.quiet,
            colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"),
            on_broken=lambda: self._events.put(_Signalled(signal.SIGPIPE)),
            on_lost=lambda why: self._say(
                f"cannot write to standard output: {why}; lines of the job's output are lost"
            ),
        )
        self._children: List[Child] = []
        # In the order of their ends, as far as we have heard of them.
        self._ended: List[Child] = []
        self._failed: List[Child] = []
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
            signal.signal(number, lambda got, _: self._events.put(_Signalled(got)))
            for number in numbers
        ]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before):
                signal.signal(number, handler)

    # -- starting ------------------------------------------------------------------------------

    def _base_env(self) -> Dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in FIXED}
        env.update(
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_NODE_HOST="127.0.0.1",
            DMLC_NUM_WORKER=str(self._job.num_workers),
            DMLC_NUM_SERVER=str(self._job.num_servers),
            PYTHONUNBUFFERED="1",
        )
        if self._job.quiet:
            env.setdefault("BYTESCHEDULER_LOG_LEVEL", "warning")
        env.update(self._job.env)
        return env

    def _start_all(self) -> None:
        env = self._base_env()
        node = list(self._job.node)
        env["DMLC_PS_ROOT_PORT"] = self._start_scheduler(node, env)
        for index in range(self._job.num_servers):
            self._start(f"server {index}", node, dict(env, DMLC_ROLE="server"))
        worker_env = dict(env, DMLC_ROLE="worker")
        prefer_native(worker_env)
        self._share_cores(worker_env)
        for index in range(self._job.num_workers):
            self._start(f"worker {index}", list(self._job.command), worker_env)

    def _start_scheduler(self, node: List[str], env: Dict[str, str]) -> str:
        """Start the scheduler node on any free port and return the port."""
        source, target = os.pipe()
        try:
            command = [*node, "--port-fd", str(target)]
            env = dict(env, DMLC_ROLE="scheduler", DMLC_PS_ROOT_PORT="0")
            self._start("scheduler", command, env, pass_fds=(target,))
        except BaseException:
            os.close(source)
            raise
        finally:
            os.close(target)
        threading.Thread(target=self._read_port, args=(source,), daemon=True).start()
        event = self._next_event()
        while not isinstance(event, _Listening):
            event = self._next_event()
        if not event.port:
            self._await_exits(self._job.grace)
            self._say("the scheduler node ended before it listened")
            raise _Over(self._children[0].shell_code or 1)
        return event.port

    def _read_port(self, source: int) -> None:
        with os.fdopen(source) as reader:
            self._events.put(_Listening(reader.readline().strip()))

    def _share_cores(self, env: Dict[str, str]) -> None:
        """Keep the workers from running more threads than there are cores."""
        if "OMP_NUM_THREADS" in env or self._job.num_workers == 1:
            return
        threads = max(1, len(os.sched_getaffinity(0)) // self._job.num_workers)
        env["OMP_NUM_THREADS"] = str(threads)
        self._remark(f"OMP_NUM_THREADS={threads} for each worker; set it yourself to change it")

    def _start(
        self, name: str, command: List[str], env: Dict[str, str], pass_fds: Tuple[int, ...] = ()
    ) -> None:
        try:
            child, source = Child.start(name, command, env, pass_fds)
        except OSError as error:
            self._say(f"cannot run {plain(command[0])}: {error.strerror}")
            raise _Over(_CANNOT_RUN) from error
        prefix = self._printer.prefix(name, len(self._children))
        self._children.append(child)
        reader = threading.Thread(target=self._printer.copy, args=(prefix, source), daemon=True)
        reader.start()
        self._readers.append(reader)
        threading.Thread(target=self._wait_for, args=(child,), daemon=True).start()

    def _wait_for(self, child: Child) -> None:
        child.wait()
        self._events.put(_Exited(child))

    # -- watching ------------------------------------------------------------------------------

    def _watch(self, enough: Callable[[], bool]) -> None:
        while not self._over.wait(_LOOK_S):
            if enough():
                self._events.put(_Enough())
                return

    def _supervise(self) -> None:
        """Return when every worker has ended well."""
        working = self._job.num_workers
        while working:
            event = self._next_event()
            if isinstance(event, _Exited) and event.child.is_worker:
                working -= 1

    def _next_event(self) -> Union[_Exited, _Listening]:
        """Return the next event that does not end the job; raise `_Over` at one that does."""
        event = self._get_event(self._deadline)
        if event is None:
            self._say(f"not finished after {self._job.timeout:g} s; ending the job")
            raise _Over(_TIMED_OUT)
        if isinstance(event, _Signalled):
            raise _Over(self._stopped_by(event.number))
        if isinstance(event, _Enough):
            self._remark("enough steps; ending the job")
            raise _Over(0)
        if isinstance(event, _Exited) and event.child.code:
            raise _Over(self._fail(event.child))
        return event

    def _get_event(
        self, deadline: Optional[float]
    ) -> Union[_Exited, _Listening, _Signalled, _Enough, None]:
        """Return the next event, or None when `deadline` (monotonic) has passed."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=left)
        except queue.Empty:
            return None
        if isinstance(event, _Exited):
            self._ended.append(event.child)
            if event.child.code:
                self._failed.append(event.child)
        return event

    def _stopped_by(self, number: int) -> int:
        self._remark(f"stopped by {signal_name(number)}")
        return 128 + number

    def _fail(self, first: Child) -> int:
        """Let the others find out and say so themselves; return the exit code of the cause.

        Our own nodes end with an error when they lose a worker, perhaps before it has quite ended:
        then that worker is the cause.
        """
        self._say(f"{first.describe()}; ending the job")
        self._await_exits(self._job.grace)
        causes = [child for child in self._failed if child.is_worker or (child.code or 0) < 0]
        cause = [*causes, first][0]
        if cause is not first:
            self._say(cause.describe())
        return cause.shell_code

    def _finish(self) -> int:
        """All workers ended well: servers and scheduler node end by themselves."""
        number = self._await_exits(self._job.grace)
        if number is not None:
            return self._stopped_by(number)
        for child in self._children:
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

    def _await_exits(self, seconds: float, last: Optional[int] = None) -> Optional[int]:
        """Return when the children have ended, `seconds` have passed, or at a signal, its number.

        Only the first `last` children count, if given.
        """
        deadline = time.monotonic() + seconds
        while any(child not in self._ended for child in self._children[:last]):
            event = self._get_event(deadline)
            if event is None:
                return None
            if isinstance(event, _Signalled):
                return event.number
        return None

    # -- ending --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        # The scheduler node first, because it tells everyone.
        self._signal(self._children[:1], signal.SIGTERM)
        self._await_exits(_NOTICE_S, last=1)
        self._signal(self._children[1:], signal.SIGTERM)
        self._await_exits(_TERM_S)  # a second Ctrl-C cuts this short
        self._signal(self._children, signal.SIGKILL)
        while self._await_exits(_TERM_S) is not None:
            pass
        deadline = time.monotonic() + _LAST_WORDS_S
        for reader in self._readers:
            reader.join(timeout=max(0.0, deadline - time.monotonic()))
        for child in self._children:
            child.reap()

    @staticmethod
    def _signal(children: List[Child], number: int) -> None:
        for child in children:
            child.signal_group(number)

    def _remark(self, text: str) -> None:
        if not self._job.quiet:
            self._say(text)

    @staticmethod
    def _say(text: str) -> None:
        say(f"bslaunch: {text}")

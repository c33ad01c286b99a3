"""Starts the processes of a job, each in its place, watches them, and ends them all.

`bslaunch --local`, the benchmarks and the tests of whole jobs are built on it.  They decide
themselves how long they wait, and how they report an end.
"""

import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import (
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from bytescheduler._process import family
from bytescheduler._process.child import SPEAKS, Child, Streams
from bytescheduler._process.ports import Ports
from bytescheduler._process.say import plain
from bytescheduler._started.hosted import named_by_workers

__all__ = [
    "FIXED",
    "LOOPBACK",
    "Exited",
    "Failed",
    "Interrupt",
    "Launcher",
    "Listening",
    "Place",
    "node_command",
]

# A launcher sets these for every process, or leaves them out: they differ between processes.
FIXED = (
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_PORT",
    "DMLC_RANK",
    "DMLC_WORKER_ID",
    "DMLC_SERVER_ID",
)

# How the scheduler node's reason for the end of a job begins.
_BLAMED = re.compile(r"(?:lost )?((?:worker|server) \d+)\b")
# A process that gave up, its reason, and the node that has told it.
_GAVE_UP = re.compile(r"(\w+ \d+) gave up: (.*?)(?: \(reported by [^()]*\))?$", re.S)
_EXIT_CODE = re.compile(r"exit code \d+")
_NODES_S = 5.0  # for nodes to end after SIGQUIT
_TERM_S = 5.0  # between SIGTERM and SIGKILL


def node_command() -> List[str]:
    """Return the command of a node with this very package, in any working directory."""
    package = str(pathlib.Path(__file__).absolute().parents[2])
    program = (
        f"import sys; sys.path = [p for p in sys.path if p] + [{package!r}]; "
        "from bytescheduler.launch import main; main()"
    )
    return [sys.executable, "-c", program]


class Place(NamedTuple):
    """Where a process of a job runs.

    Parameters
    ----------
    address : str
        That of the host.
    prefix : sequence of str
        The beginning of a command, so that it runs there as the same process, such as
        ``ip netns exec``.
    """

    address: str = "127.0.0.1"
    prefix: Sequence[str] = ()


LOOPBACK = Place()


class Interrupt:
    """An event that ends every wait; `Launcher.put` takes it from any thread."""


class Exited(NamedTuple):
    """A process has ended."""

    child: Child


class Failed(NamedTuple):
    """The scheduler node says why the job failed."""

    reason: str


class Listening(NamedTuple):
    """The scheduler node listens on this port; 0: it ended before it did."""

    port: int


class Launcher:
    """The processes of one job; all are ended at the end of a ``with`` block.

    One thread alone uses it, which starts the processes too.  Other threads may call `put` and
    `kill_all`; signal handlers may call `put`.

    Parameters
    ----------
    num_workers, num_servers : int
        The shape of the job that all processes are told.  Without servers each worker hosts one,
        and the verdict names the worker instead.
    env : mapping of str to str
        The environment of every process; without the variables in `FIXED`.
    root : Place
        Where the scheduler node runs.
    port : int
        Where it listens; 0: it takes any port and reports it.
    folder : Path, optional
        Where all processes run; None: where this process does.
    sessions : bool
        Whether each process gets a session of its own.

    Attributes
    ----------
    children : list of Child
        All that were started, in that order.
    workers : list of Child
        The children of the role worker.
    failed : list of Child
        The children whose failure `next_event` has returned, in the order of their ends.
    port : int
        Where the scheduler node listens; 0 until that is known.
    verdict : str
        Why the job failed, in the words of the scheduler node; empty until it says so.
    """

    def __init__(
        self,
        num_workers: int,
        num_servers: int,
        env: Mapping[str, str],
        *,
        root: Place = LOOPBACK,
        port: int = 0,
        folder: Optional[pathlib.Path] = None,
        sessions: bool = False,
    ) -> None:
        self.children: List[Child] = []
        self.workers: List[Child] = []
        self.failed: List[Child] = []
        self.port = port
        self.verdict = ""
        self._root = root
        self._folder = folder
        self._sessions = sessions
        self._workers_host_servers = num_servers == 0
        self._env = {name: value for name, value in env.items() if name not in FIXED}
        self._env.update(
            DMLC_PS_ROOT_URI=root.address,
            DMLC_NUM_WORKER=str(num_workers),
            DMLC_NUM_SERVER=str(num_servers),
        )
        self._ports = Ports()
        self._ended: List[Child] = []  # `next_event` has returned them
        # A SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[object] = queue.SimpleQueue()

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        for child in self.children:
            child.wait()
        self.close()

    # -- starting ------------------------------------------------------------------------------

    def reserve_port(self) -> int:
        """Let the scheduler node listen on a free port that is known before it starts."""
        self.port = self._ports.free()
        return self.port

    def free_port(self) -> int:
        """Return a port for a process of the job, which stays free until the job has ended."""
        return self._ports.free()

    def start(
        self,
        role: str,
        command: Sequence[str],
        *,
        name: str = "",
        place: Place = LOOPBACK,
        env: Optional[Mapping[str, str]] = None,
        streams: Streams = SPEAKS,
        pass_fds: Tuple[int, ...] = (),
    ) -> Child:
        """Start a process of the job.

        Parameters
        ----------
        role
            The value of DMLC_ROLE: scheduler, server or worker.
        command
            The command line.
        name
            Its name in messages; the role by default.
        place
            Where it runs.
        env
            Further variables, which override the variables of all processes.
        streams, pass_fds
            As `Child.start` has them.

        Raises
        ------
        OSError
            The command cannot be run.
        """
        child = Child.start(
            name or role,
            [*place.prefix, *command],
            {**self._variables(role), "DMLC_NODE_HOST": place.address, **(env or {})},
            streams=streams,
            folder=self._folder,
            pass_fds=pass_fds,
            session=self._sessions,
            on_end=lambda ended: self._events.put(Exited(ended)),
        )
        self._add(role, child)
        return child

    def _variables(self, role: str) -> Dict[str, str]:
        return {**self._env, "DMLC_ROLE": role, "DMLC_PS_ROOT_PORT": str(self.port)}

    def _add(self, role: str, child: Child) -> None:
        self.children.append(child)
        if role == "worker":
            self.workers.append(child)

    def start_scheduler(
        self,
        command: Sequence[str],
        *,
        name: str = "scheduler",
        env: Optional[Mapping[str, str]] = None,
        streams: Streams = SPEAKS,
    ) -> Child:
        """Start the scheduler node.

        Without a port the command gets ``--port-fd N`` too.  It writes its port and a newline to
        that descriptor, and a line with the reason if the job fails.  `Listening` and `Failed`
        events come then, and `await_port` waits for the first.
        """
        if self.port:
            return self.start(
                "scheduler", command, name=name, place=self._root, env=env, streams=streams
            )
        source, target = os.pipe()
        try:
            command = [*command, "--port-fd", str(target)]
            child = self.start(
                "scheduler",
                command,
                name=name,
                place=self._root,
                env=env,
                streams=streams,
                pass_fds=(target,),
            )
        except BaseException:
            os.close(source)
            raise
        finally:
            os.close(target)
        threading.Thread(target=self._read_port, args=(source,), daemon=True).start()
        return child

    def _read_port(self, source: int) -> None:
        with os.fdopen(source, errors="replace") as reader:
            self._events.put(Listening(int(reader.readline().strip() or 0)))
            for line in reader:
                self._events.put(Failed(line.strip()))

    # -- watching ------------------------------------------------------------------------------

    def put(self, event: object) -> None:
        """Let `next_event` return `event`, from any thread or a signal handler."""
        self._events.put(event)

    def next_event(self, deadline: Optional[float] = None) -> Optional[object]:
        """Return the next event of a process or of `put`; None: the deadline has passed.

        Deadlines count by time.monotonic().  A call after its deadline still takes an event that
        is there already.
        """
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=left)
        except queue.Empty:
            return None
        if isinstance(event, Exited):
            self._ended.append(event.child)
            if event.child.code:
                self.failed.append(event.child)
        if isinstance(event, Listening):
            self.port = event.port
        if isinstance(event, Failed):
            is_hosted = self._workers_host_servers
            self.verdict = named_by_workers(event.reason) if is_hosted else event.reason
        return event

    def events_until(
        self, is_over: Callable[[], bool], deadline: Optional[float] = None
    ) -> Iterator[object]:
        """Yield the next events until `is_over()`, or until the deadline has passed."""
        while not is_over():
            event = self.next_event(deadline)
            if event is None:
                return
            yield event

    def await_port(self, deadline: Optional[float] = None) -> bool:
        """Return True once the scheduler node listens; False: it ended, or the deadline passed."""
        for event in self.events_until(lambda: bool(self.port), deadline):
            if event == Listening(0):
                return False
        return bool(self.port)

    def await_first(
        self, children: Sequence[Child], deadline: Optional[float] = None
    ) -> Optional[Child]:
        """Return the first of `children` that ends; None: the deadline has passed."""

        def first() -> Optional[Child]:
            return next((child for child in self._ended if child in children), None)

        for _ in self.events_until(lambda: first() is not None, deadline):
            pass
        return first()

    def await_ends(
        self, children: Iterable[Child], deadline: Optional[float] = None
    ) -> Optional[Interrupt]:
        """Return when all of `children` have ended, or at the deadline; earlier at an Interrupt."""
        awaited = set(children)
        for event in self.events_until(lambda: awaited.issubset(self._ended), deadline):
            if isinstance(event, Interrupt):
                return event
        return None

    def await_good_end(self, timeout_s: float) -> Optional[Child]:
        """Return None when all have ended well, or the cause as soon as one has failed.

        Raises
        ------
        subprocess.TimeoutExpired
            Another process still ran after `timeout_s`; it names the command.
        """
        for _ in self.events_until(self._is_decided, time.monotonic() + timeout_s):
            pass
        if not self._is_decided():
            running = next(child for child in self.children if child not in self._ended)
            raise subprocess.TimeoutExpired(running.command, timeout_s)
        return self.cause() if self.failed else None

    def _is_decided(self) -> bool:
        return bool(self.failed) or len(self._ended) == len(self.children)

    def cause(self) -> Child:
        """Return the process whose failure made the job fail.  Only when one has `failed`.

        The scheduler node's verdict names it, if it has one.  Our own nodes end with an error when
        they lose a worker, perhaps before it has quite ended.  So it is else the first worker, or
        the first that a signal ended, before any other process.
        """
        blamed = self.blamed()
        if blamed in self.failed:
            return blamed
        lost = (child for child in self.failed if child in self.workers or (child.code or 0) < 0)
        return next(lost, self.failed[0])

    def blamed(self) -> Optional[Child]:
        """Return the process that the scheduler node's verdict names, or None."""
        match = _BLAMED.match(self.verdict)
        if match is None:
            return None
        name = match.group(1)
        if self._workers_host_servers:
            name = name.replace("server", "worker")
        return next((child for child in self.children if child.name == name), None)

    def describe(self, child: Child) -> str:
        """Return how a process ended, and why it gave up if it did.  Only when it has ended."""
        match = _GAVE_UP.match(self.verdict)
        if match is None or match.group(1) != child.name:
            return child.describe()
        reason = match.group(2)
        code = _EXIT_CODE.match(reason)
        more = f": {reason}" if code is None else reason[code.end() :]
        return child.describe() + plain(more)

    # -- ending --------------------------------------------------------------------------------

    def end_all(self, patience_s: float = _TERM_S) -> None:
        """End all, after `patience_s` seconds by SIGKILL; an Interrupt cuts the waits short.

        The workers first: they would take the end of a node for a failure, and say so at length.
        Nodes get SIGQUIT, since they stay for a while after SIGTERM.
        """
        nodes = [child for child in self.children if child not in self.workers]
        self._signal(self.workers, signal.SIGTERM)
        self.await_ends(self.workers, time.monotonic() + patience_s)
        self._signal(self.workers, signal.SIGKILL)
        self._signal(nodes, signal.SIGQUIT)
        self.await_ends(self.children, time.monotonic() + _NODES_S)
        self.kill_all()
        while self.await_ends(self.children, time.monotonic() + _TERM_S) is not None:
            pass

    def kill_all(self) -> None:
        """End all processes and all their descendants at once, whatever their groups."""
        left = [child.pid for child in self.children if not child.is_closed]
        offspring = family.members(left) if left else []
        self._signal(self.children, signal.SIGKILL)
        family.send(offspring, signal.SIGKILL)

    def close(self) -> None:
        """Release the ports, and the system's entries of ended processes."""
        self._ports.close()
        for child in self.children:
            child.close()

    @staticmethod
    def _signal(children: List[Child], number: int) -> None:
        for child in children:
            child.signal_group(number)

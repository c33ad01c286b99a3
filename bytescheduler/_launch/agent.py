"""The end of `bslaunch -H` on a host that ssh reached: runs one process of the job there.

Its first line of input is an `Order` as JSON; the next ones are numbers of signals for the process.
When its input ends, the process gets SIGTERM, and SIGKILL after its grace.  On stdout it writes
lines of a word and a text; the output of the process goes to stderr.  Command lines are seen by
every user of a host and pass through a shell, so neither variables nor commands travel there.
"""

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from types import FrameType
from typing import Dict, List, Optional, Sequence, Tuple

from bytescheduler._launch.launcher import node_command
from bytescheduler._launch.local_job import usable_cores
from bytescheduler._native import version
from bytescheduler._process import family, limits
from bytescheduler._process.child import Child, Streams
from bytescheduler._process.ports import Ports
from bytescheduler._process.say import plain

__all__ = ["ERROR", "EXIT", "FAILED", "HELLO", "MEETING", "OK", "PORT", "Order", "serve"]

HELLO, OK, PORT, FAILED, EXIT, ERROR = "hello", "ok", "port", "failed", "exit", "error"
MEETING = "meeting"  # a port for workers, free until this process ends
_MORE_S = 5.0  # beyond the grace, until SIGKILL
_TAIL_S = 2.0  # for what the scheduler node still reports
_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_CHUNK = 1 << 16
_MOST_BYTES = 64 << 20  # the longest order


@dataclasses.dataclass(frozen=True)
class Order:
    """The task of an agent.

    Parameters
    ----------
    version : str
        That of the package; an agent of another one refuses.
    folder : str
        Where the process runs.
    command : list of str
        The command of a worker; empty for other roles.
    env : dict
        Variables of the process, on top of those of the login.
    share : int
        How many workers share the host.
    grace : float
        Seconds that the process has to end once the connection is gone.
    check : bool
        Only look whether all of this is there.
    """

    version: str
    folder: str
    command: List[str]
    env: Dict[str, str]
    share: int = 1
    grace: float = 25.0
    check: bool = False

    def as_line(self) -> str:
        """Return it as one line."""
        return json.dumps(dataclasses.asdict(self)) + "\n"


class _Input:
    """Lines from stdin, for `select`."""

    def __init__(self) -> None:
        self._pending = b""
        self.ended = False

    def lines(self) -> List[str]:
        """Return those that have come; blocks if none has, once."""
        chunk = os.read(0, _CHUNK)
        self.ended = not chunk or len(self._pending) > _MOST_BYTES
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return [line.decode(errors="surrogateescape") for line in lines]


def _tell(word: str, text: str = "") -> None:
    with contextlib.suppress(OSError):  # nothing reads it any more
        os.write(1, f"{word} {plain(text)}\n".encode(errors="replace"))


def _why_not(order: Order, env: Dict[str, str]) -> Tuple[str, int]:
    """Return why the order cannot be carried out, and the exit code of shells for that."""
    if order.version != version():
        return f"it has bytescheduler {version()}, and this host {order.version}", 1
    try:
        os.chdir(order.folder)
    except OSError as error:
        return f"cannot enter the folder {order.folder}: {error.strerror}", 1
    path = env.get("PATH")
    if not order.command or shutil.which(order.command[0], path=path):
        return "", 0
    if shutil.which(order.command[0], mode=os.F_OK, path=path):
        return f"cannot run {order.command[0]}: permission denied", 126
    return f"command not found: {order.command[0]}", 127


def _env_of(order: Order) -> Dict[str, str]:
    env = {**os.environ, **order.env}
    ours = os.environ.get("PATH", "")
    if "PATH" in order.env and ours:
        env["PATH"] = f"{order.env['PATH']}:{ours}"
    if order.share > 1 and "OMP_NUM_THREADS" not in env and env.get("DMLC_ROLE") == "worker":
        env["OMP_NUM_THREADS"] = str(max(1, usable_cores() // order.share))
    return env


def serve() -> int:
    """Take an order from stdin, carry it out and return its exit code; on the main thread only."""
    source = _Input()
    lines: List[str] = []
    while not lines and not source.ended:
        lines = source.lines()
    if not lines:
        return 1
    try:
        order = Order(**json.loads(lines[0]))
        env = _env_of(order)
    except (TypeError, ValueError):
        _tell(ERROR, f"it has bytescheduler {version()}, which cannot read this order")
        return 1
    refusal, code = _why_not(order, env)
    if refusal:
        _tell(ERROR, refusal)
        return code
    if order.check:
        _tell(OK)
        return 0
    _tell(HELLO)
    return _Process(order, env, source).to_the_end(lines[1:])


class _Process:
    """The process of an order; all but `_copy` and the callbacks runs on the main thread."""

    def __init__(self, order: Order, env: Dict[str, str], source: _Input) -> None:
        self._order = order
        self._env = env
        self._source = source
        self._wake, self._waker = os.pipe()
        self._deadline: Optional[float] = None
        self._readers: List[threading.Thread] = []
        self._ports = Ports()

    def to_the_end(self, early: Sequence[str]) -> int:
        family.adopt_orphans()
        for number in _STOPPING:
            signal.signal(number, self._on_signal)
        try:
            child = self._start()
        except OSError as error:
            _tell(ERROR, f"cannot run {node_command()[0]}: {limits.reason(error)}")
            return 126
        self._obey(child, early)
        while child.code is None:
            self._look(child)
        family.send(family.members([os.getpid()]), signal.SIGKILL)
        for reader in self._readers:
            reader.join(_TAIL_S)
        _tell(EXIT, str(child.shell_code))
        return child.shell_code

    def _start(self) -> Child:
        source = target = -1
        command = [*node_command()]
        if self._env.get("DMLC_ROLE") == "scheduler":
            _tell(MEETING, str(self._ports.free()))
            source, target = os.pipe()
            command += ["--port-fd", str(target)]
        try:
            child = Child.start(
                "process",
                [*command, *self._order.command],
                self._env,
                streams=Streams(subprocess.DEVNULL, 2, 2),
                pass_fds=() if target < 0 else (target,),
                session=True,
                on_end=lambda _: self._wake_up(),
            )
        finally:
            if target >= 0:
                os.close(target)
        if source >= 0:
            self._readers.append(threading.Thread(target=self._copy, args=(source,), daemon=True))
            self._readers[0].start()
        return child

    @staticmethod
    def _copy(source: int) -> None:
        """Pass on what the scheduler node reports: its port, then why the job failed."""
        with os.fdopen(source, errors="replace") as reader:
            port = reader.readline().strip()
            if port:
                _tell(PORT, port)
            for line in reader:
                _tell(FAILED, line.strip())

    def _wake_up(self) -> None:
        os.write(self._waker, b"x")

    def _on_signal(self, _number: int, _frame: Optional[FrameType]) -> None:
        self._source.ended = True
        self._wake_up()

    def _look(self, child: Child) -> None:
        """Wait for the next thing to happen, and obey it."""
        watched = [self._wake] if self._source.ended else [self._wake, 0]
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        ready = select.select(watched, [], [], left)[0]
        if self._wake in ready:
            os.read(self._wake, _CHUNK)
        if 0 in ready:
            self._obey(child, self._source.lines())
        if self._source.ended and self._deadline is None:
            self._deadline = time.monotonic() + self._order.grace + _MORE_S
            child.signal(signal.SIGTERM)
        elif self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill(child)

    def _obey(self, child: Child, lines: Sequence[str]) -> None:
        for line in lines:
            if line == str(int(signal.SIGKILL)):
                self._kill(child)
            elif line.isdigit() and int(line) in signal.valid_signals():
                child.signal(int(line))

    @staticmethod
    def _kill(child: Child) -> None:
        family.send([child.pid, *family.members([child.pid])], signal.SIGKILL)

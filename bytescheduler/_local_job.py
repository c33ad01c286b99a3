"""A whole job on this host: one scheduler node, servers and workers as child processes."""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Dict, List, NamedTuple, Optional

_COLOURS = (36, 33, 32, 35, 34, 31)
_MAX_LINE_BYTES = 64 << 10
_END_BY_ITSELF_S = 10.0  # after a failure, and for servers after the last worker
_TERM_S = 5.0  # between SIGTERM and SIGKILL
_PR_SET_PDEATHSIG = 1


class _Event(NamedTuple):
    """Something the main thread must act on: a child's exit, or a signal to us (child None)."""

    child: "Optional[_Child]"
    code: int


class _Child:
    """One process of the job, in a process group of its own, with its output prefixed."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        self.name = name
        self.process = process

    def signal_group(self, number: int) -> None:
        """Signal the process and what it started; nothing if all are gone."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class _Printer:
    """Writes whole lines of several children to one stream, each with its prefix."""

    def __init__(self, stream: IO[str], quiet: bool) -> None:
        self._stream = stream
        self._quiet = quiet
        self._colour = stream.isatty()
        self._lock = threading.Lock()

    def prefix(self, name: str, index: int) -> str:
        """Return what stands before each line of `name`."""
        if self._quiet:
            return ""
        if self._colour:
            return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{name}]\x1b[0m "
        return f"[{name}] "

    def write(self, prefix: str, line: bytes) -> None:
        """Write one line; of a progress bar that redraws itself only the last state."""
        text = line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
        with self._lock:
            self._stream.write(f"{prefix}{text}\n")
            self._stream.flush()

    def copy(self, prefix: str, source: int) -> None:
        """Copy lines from the descriptor `source` until it ends; runs on a thread of its own."""
        pending = b""
        while True:
            chunk = os.read(source, 1 << 16)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self.write(prefix, line)
            if len(pending) > _MAX_LINE_BYTES:
                self.write(prefix, pending)
                pending = b""
        if pending:
            self.write(prefix, pending)
        os.close(source)


def _exit_code(returncode: int) -> int:
    return 128 - returncode if returncode < 0 else returncode


def _describe_exit(returncode: int) -> str:
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


def _die_with_parent() -> None:
    # So that even SIGKILL for bslaunch leaves nothing behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class LocalJob:
    """One run of a job on this host.

    Parameters
    ----------
    command : list of str
        What each worker runs.
    num_workers, num_servers : int
        How many of each; at least 1.
    env : dict
        Variables for every process, on top of this process's own.
    timeout : float, optional
        Seconds after which the job is ended with exit code 124.
    quiet : bool
        No prefixes, and only warnings from the scheduler node and the servers.
    """

    def __init__(
        self,
        *,
        command: List[str],
        num_workers: int,
        num_servers: int,
        env: Dict[str, str],
        timeout: Optional[float],
        quiet: bool,
    ) -> None:
        self._command = command
        self._num_workers = num_workers
        self._num_servers = num_servers
        self._env = env
        self._timeout = timeout
        self._quiet = quiet
        self._printer = _Printer(sys.stdout, quiet)
        self._events: "queue.SimpleQueue[_Event]" = queue.SimpleQueue()
        self._children: List[_Child] = []
        self._readers: List[threading.Thread] = []

    def run(self) -> int:
        """Run the job to its end and return the exit code for the shell.

        The first process that fails decides the code (128 + n if signal n ended it); a signal to us
        gives 128 + n, the time-out 124.
        """
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {
            number: signal.signal(
                number, lambda n, _: self._events.put(_Event(None, n))
            )
            for number in numbers
        }
        try:
            code = self._start_all()
            return self._supervise() if code is None else code
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    # -- starting ------------------------------------------------------------------------------

    def _base_env(self) -> Dict[str, str]:
        env = dict(os.environ)
        env.update(
            DMLC_PS_ROOT_URI="127.0.0.1",
            DMLC_NODE_HOST="127.0.0.1",
            DMLC_NUM_WORKER=str(self._num_workers),
            DMLC_NUM_SERVER=str(self._num_servers),
            PYTHONUNBUFFERED="1",
        )
        env.pop("DMLC_RANK", None)
        if self._quiet:
            env.setdefault("BYTESCHEDULER_LOG_LEVEL", "warning")
        env.update(self._env)
        return env

    def _start_all(self) -> Optional[int]:
        """Start every role; an exit code if the scheduler node did not come up."""
        env = self._base_env()
        node = [sys.executable, "-m", "bytescheduler.launch"]
        read_end, write_end = os.pipe()
        self._start(
            "scheduler",
            [*node, "--port-fd", str(write_end)],
            dict(env, DMLC_ROLE="scheduler", DMLC_PS_ROOT_PORT="0"),
            pass_fds=(write_end,),
        )
        os.close(write_end)
        with os.fdopen(read_end) as reader:
            port = reader.readline().strip()
        if not port:
            self._say("the scheduler node did not start; its reason is above")
            return _exit_code(self._children[0].process.wait()) or 1
        env["DMLC_PS_ROOT_PORT"] = port
        for index in range(self._num_servers):
            self._start(f"server {index}", node, dict(env, DMLC_ROLE="server"))
        worker_env = dict(env, DMLC_ROLE="worker")
        worker_env.setdefault("BYTESCHEDULER_BACKEND", "native")
        self._share_cores(worker_env)
        for index in range(self._num_workers):
            self._start(f"worker {index}", self._command, worker_env)
        return None

    def _share_cores(self, env: Dict[str, str]) -> None:
        if "OMP_NUM_THREADS" in env or self._num_workers == 1:
            return
        threads = max(1, len(os.sched_getaffinity(0)) // self._num_workers)
        env["OMP_NUM_THREADS"] = str(threads)
        self._say(
            f"OMP_NUM_THREADS={threads} for each worker; set it yourself to change it"
        )

    def _start(
        self,
        name: str,
        command: List[str],
        env: Dict[str, str],
        pass_fds: "tuple[int, ...]" = (),
    ) -> None:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            pass_fds=pass_fds,
        )
        child = _Child(name, process)
        index = len(self._children)
        self._children.append(child)
        assert process.stdout is not None
        source = os.dup(process.stdout.fileno())
        process.stdout.close()
        prefix = self._printer.prefix(name, index)
        reader = threading.Thread(
            target=self._printer.copy, args=(prefix, source), daemon=True
        )
        reader.start()
        self._readers.append(reader)
        threading.Thread(target=self._wait_for, args=(child,), daemon=True).start()

    def _wait_for(self, child: _Child) -> None:
        self._events.put(_Event(child, child.process.wait()))

    # -- watching ------------------------------------------------------------------------------

    def _supervise(self) -> int:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        working = self._num_workers
        while working:
            event = self._next_event(deadline)
            if event is None:
                self._say(f"not finished after {self._timeout:g} s")
                return 124
            if event.child is None:
                self._say(f"stopped by {signal.Signals(event.code).name}")
                return 128 + event.code
            if event.code:
                return self._fail(event)
            if event.child.name.startswith("worker"):
                working -= 1
        return self._finish()

    def _next_event(self, deadline: Optional[float]) -> Optional[_Event]:
        """Return the next event, or None when `deadline` (monotonic) has passed."""
        try:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._events.get(timeout=left)
        except queue.Empty:
            return None

    def _fail(self, first: _Event) -> int:
        """Let the others find out and say so themselves; what is left then is ended."""
        assert first.child is not None
        self._say(f"{first.child.name} {_describe_exit(first.code)}; ending the job")
        self._await_exits(_END_BY_ITSELF_S)
        return _exit_code(first.code)

    def _finish(self) -> int:
        """All workers ended well: servers and scheduler node end by themselves."""
        self._await_exits(_END_BY_ITSELF_S)
        for child in self._children:
            code = child.process.poll()
            if code is None:
                self._say(f"{child.name} did not end after the last worker; ending it")
                return 1
            if code:
                self._say(f"{child.name} {_describe_exit(code)}")
                return _exit_code(code)
        return 0

    def _await_exits(self, seconds: float) -> None:
        """Return when every child has exited, `seconds` have passed, or a signal came."""
        deadline = time.monotonic() + seconds
        while any(child.process.poll() is None for child in self._children):
            event = self._next_event(deadline)
            if event is None or event.child is None:
                return

    # -- ending --------------------------------------------------------------------------------

    def _end_all(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            alive = [child for child in self._children if child.process.poll() is None]
            for child in alive:
                child.signal_group(number)
            self._await_exits(_TERM_S)
        for child in self._children:
            child.signal_group(signal.SIGKILL)  # what a child left behind in its group
        for reader in self._readers:
            reader.join(timeout=_TERM_S)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(f"bslaunch: {text}", file=sys.stderr, flush=True)

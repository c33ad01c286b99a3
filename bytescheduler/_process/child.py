"""One process of a job on this host: its start, its end, and what it started itself."""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import threading
from typing import (
    IO,
    Callable,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

__all__ = ["SPEAKS", "Child", "Streams", "die_with", "signal_name"]

_C = TypeVar("_C", bound="Child")
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


class Streams(NamedTuple):
    """Where a process reads and writes, in the words of `subprocess.Popen`; None is our own."""

    stdin: Optional[int] = subprocess.DEVNULL
    stdout: Union[int, IO[bytes], None] = None
    stderr: Union[int, IO[bytes], None] = None


SPEAKS = Streams()  # without input, to where this process writes


def _ignore(_: "Child") -> None:
    pass


class Child:
    """A child process in a process group of its own; made by `start`.

    Once it has ended it stays a zombie until `close`, so that no other process can get its number
    meanwhile.  Until then every method may be called on any thread.
    """

    def __init__(self, name: str, command: Sequence[str], process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.command = command
        self.code: Optional[int] = None  # -n for signal n; None while it runs
        # Our ends of its pipes.
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._process = process
        self._ended = threading.Event()
        self._closed = False

    @classmethod
    def start(
        cls: "Type[_C]",
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        streams: Streams = SPEAKS,
        folder: Optional[pathlib.Path] = None,
        pass_fds: Tuple[int, ...] = (),
        session: bool = False,
        on_end: "Callable[[Child], None]" = _ignore,
    ) -> "_C":
        """Start `command`.

        It gets SIGTERM when the thread that calls this ends before it.

        Parameters
        ----------
        name
            What messages call it.
        command, env
            As `subprocess.Popen` has them.
        streams
            Its input and output.
        folder
            Where it runs; None: where this process does.
        pass_fds
            The descriptors that it inherits.
        session
            It gets a session of its own, so no terminal.  Linux may share the processors out
            between sessions, so what is measured stays in that of this process.
        on_end
            Called once when it has ended, on another thread.

        Raises
        ------
        OSError
            It cannot be run.
        """
        us = os.getpid()

        def prepare() -> None:
            die_with(us)
            # A shell lets what it starts in the background ignore it.
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
            if not session:
                os.setpgid(0, 0)

        process = subprocess.Popen(
            command,
            env=env,
            cwd=folder,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            text=True,
            errors="replace",
            start_new_session=session,
            preexec_fn=prepare,
            pass_fds=pass_fds,
        )
        child = cls(name, command, process)
        threading.Thread(target=child._await_end, args=(on_end,), daemon=True).start()
        return child

    def _await_end(self, on_end: "Callable[[Child], None]") -> None:
        info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        assert info is not None
        self.code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        self._ended.set()
        on_end(self)

    @property
    def pid(self) -> int:
        """The number of the process, which is that of its group too."""
        return self._process.pid

    @property
    def is_closed(self) -> bool:
        """True if another process may have its number by now."""
        return self._closed

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

    def take_output(self) -> int:
        """Return the descriptor of its output pipe, which the caller closes from now on."""
        assert self.stdout is not None
        output = os.dup(self.stdout.fileno())
        self.stdout.close()
        self.stdout = None
        return output

    def wait(self, timeout_s: Optional[float] = None) -> int:
        """Block until the process has ended; return `code`.

        Raises
        ------
        subprocess.TimeoutExpired
            It had not ended after `timeout_s`.
        """
        if not self._ended.wait(timeout_s):
            assert timeout_s is not None
            raise subprocess.TimeoutExpired(self.command, timeout_s)
        assert self.code is not None
        return self.code

    def signal(self, number: int) -> None:
        """Signal the process alone."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Signal the process and what it started; nothing happens after `close`."""
        if self._closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def close(self) -> None:
        """Close the pipes, and give the number of a process that has ended back; never blocks."""
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # some input was never read
                    pipe.close()
        if self.code is not None:
            self._closed = True
            self._process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it started, if it still runs."""
        self.signal_group(signal.SIGKILL)
        self.wait()
        self.close()

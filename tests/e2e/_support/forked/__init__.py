"""Workers of jobs that are forked from a process that has imported their framework.

The test is the parent of a forked worker, as it is of a started one.  So groups, signals, exit
codes and zombies are the same.  These differ: the words in /proc/PID/cmdline, one seed of hashes
for all workers of a server, and the objects of the import, which no garbage collector visits.  The
framework is always imported before our package; jobs of the examples import it as users do.
"""

import array
import atexit
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
from typing import Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from bytescheduler._launch.launcher import LOOPBACK, Exited, Launcher, Place
from bytescheduler._process.child import SPEAKS, Child, Streams

__all__ = ["ForkingLauncher", "HostPlace", "framework_of", "start_worker"]

_HERE = pathlib.Path(__file__).resolve().parent
_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
# What is read when it is used, by the product and by the ps-lite of MXNet, and pytest's own.
_READ_LATER = ("DMLC_", "BYTESCHEDULER_", "PYTEST_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
_READ_LATER += ("PS_", "MXNET_KVSTORE_", "MXNET_UPDATE_ON_KVSTORE")
# An environment of its own needs a server of its own, and each holds some 150 MB.
_MOST_SERVERS = 4
_PATIENCE_S = 120.0
_IMPORTS = re.compile(r"^(?:from|import) (\w+)", re.M)
# A server imports it with its optimizer.
_IMPORT_LATER = {"stock_role.py": "mxnet", "our_role.py": "mxnet"}


@functools.lru_cache(maxsize=None)
def framework_of(script: pathlib.Path) -> str:
    """Return the framework that a script imports, itself or by its neighbours; empty: none."""
    found = _IMPORTS.findall(script.read_text())
    for framework in ("mxnet", "torch", "tensorflow"):
        if framework in found:
            return framework
    folders = (script.parent, _HERE.parent / "on_path")
    names = {folder / f"{name}.py" for folder in folders for name in found} - {script}
    return next(filter(None, (framework_of(each) for each in names if each.exists())), "")


class HostPlace(Place):
    """A place on a host of a lab: the prefix of a command, or for a fork the namespaces."""

    namespaces: Sequence[str] = ()


class _Forked:
    """The part of `subprocess.Popen` that a `Child` uses."""

    stdin = stdout = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> None:
        os.waitpid(self.pid, 0)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of what loses its own below this process."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


class _ForkServer:
    """One process that forks; see server.py."""

    def __init__(self, framework: str, env: Mapping[str, str]) -> None:
        self._framework = framework
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.settimeout(_PATIENCE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "server.py"), framework],
                env=env,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                preexec_fn=lambda: os.setpgid(0, 0),
            )

    def fork(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        folder: str,
        streams: Streams,
        namespaces: Sequence[str],
    ) -> int:
        """Return the number of a new child of this process."""
        request = {
            "words": words,
            "env": env,
            "folder": folder,
            "parent": os.getpid(),
            "namespaces": namespaces,
        }
        with contextlib.ExitStack() as stack, _adopting():
            descriptors = array.array("i")
            for own, stream in enumerate(streams):
                if stream == subprocess.DEVNULL:
                    stream = stack.enter_context(open(os.devnull, "r+b", buffering=0))
                stream = own if stream is None else stream
                descriptors.append(stream if isinstance(stream, int) else stream.fileno())
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
            response = b""
            with contextlib.suppress(ConnectionError):
                self._link.sendmsg([json.dumps(request).encode()], [rights])
                response = self._link.recv(64)
        if not response:
            raise RuntimeError(f"the fork server of {self._framework} has ended")
        return int(response)

    def close(self) -> None:
        """Let it end; its workers run on."""
        self._link.close()
        self._process.wait(_PATIENCE_S)


class _ForkServers:
    """The servers of this process, by framework and by what is read at an import."""

    def __init__(self) -> None:
        self._servers: Dict[Tuple[str, Tuple[Tuple[str, str], ...]], _ForkServer] = {}
        atexit.register(self.close)

    def find(self, framework: str, env: Mapping[str, str]) -> _ForkServer:
        """Return the server for workers with this environment; start it if there is none."""
        early = {name: env[name] for name in sorted(env) if not name.startswith(_READ_LATER)}
        key = framework, tuple(early.items())
        server = self._servers.pop(key, None) or _ForkServer(framework, early)
        self._servers[key] = server  # the last of them is the latest that was used
        if len(self._servers) > _MOST_SERVERS:
            self._servers.pop(next(iter(self._servers))).close()
        return server

    def close(self) -> None:
        """End all of them."""
        while self._servers:
            self._servers.popitem()[1].close()


_SERVERS = _ForkServers()


def _fork(
    framework: str,
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    folder: str,
    streams: Streams,
    place: Place,
) -> Child:
    namespaces = place.namespaces if isinstance(place, HostPlace) else ()
    server = _SERVERS.find(framework, env)
    pid = server.fork(command[1:], env, folder, streams, namespaces)
    return Child(name, command, _Forked(pid))  # type: ignore[arg-type]


def _await_end(child: Child, on_end: Callable[[Child], None]) -> None:
    threading.Thread(target=child._await_end, args=(on_end,), daemon=True).start()


def start_worker(
    name: str,
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    streams: Streams,
    folder: Optional[pathlib.Path] = None,
    place: Place = LOOPBACK,
) -> Child:
    """Fork a process that runs a script, or start it if the script imports no framework.

    `command` is the interpreter, the script and its arguments.
    """
    framework = framework_of(pathlib.Path(command[1]))
    if not framework:
        return Child.start(name, [*place.prefix, *command], env, streams=streams, folder=folder)
    child = _fork(framework, name, command, env, str(folder or os.getcwd()), streams, place)
    _await_end(child, lambda _: None)
    return child


class ForkingLauncher(Launcher):
    """Forks workers whose scripts import a framework; starts all else."""

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
        """Start it as `Launcher.start` does, or fork it."""
        script = pathlib.Path(command[1]) if len(command) > 1 else pathlib.Path()
        framework = ""
        can_fork = isinstance(place, HostPlace) or not place.prefix
        if command[0] == sys.executable and can_fork and not pass_fds:
            framework = _IMPORT_LATER.get(script.name, "")
            if role == "worker" and script.suffix == ".py":
                framework = framework_of(script)
        if not framework:
            return super().start(
                role,
                command,
                name=name,
                place=place,
                env=env,
                streams=streams,
                pass_fds=pass_fds,
            )
        whole = {**self._variables(role), "DMLC_NODE_HOST": place.address, **(env or {})}
        folder = str(self._folder or os.getcwd())
        child = _fork(framework, name or role, command, whole, folder, streams, place)
        _await_end(child, lambda ended: self._events.put(Exited(ended)))
        self._add(role, child)
        return child

"""A process that has imported a framework, and forks the workers of tests: the import is paid once.

``server.py FRAMEWORK``: its standard input is a socket.  A request is a `dict` in JSON, with
the descriptors of a worker's input, output and errors.  The response is the worker's number.

A worker is forked twice, so that it stems from the process that asked: a parent that ends leaves
its child to the nearest process above it that adopts orphans.
"""

import array
import ctypes
import gc
import importlib
import importlib.machinery
import json
import multiprocessing.process
import os
import signal
import socket
import sys
import time
import types
from typing import Any, Dict, List

REQUEST_BYTES = 1 << 17
STREAMS = 3
# What frameworks import late, and nearly every worker: torch._dynamo costs as much as torch.
LATE = {"torch": ["torch._dynamo"]}
PR_SET_PDEATHSIG = 1
CLONE_FS = 0x200
LIBC = ctypes.CDLL(None, use_errno=True)


def single_threaded() -> None:
    """Fail if a thread runs besides this one: a child would have its locks, and not the thread."""
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"the import left {len(threads) - 1} threads"


def fork_worker(link: socket.socket, request: Dict[str, Any], streams: List[int]) -> bool:
    """Return True in the worker, and False here."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    if os.fork():
        os._exit(0)
    parent = request["parent"]
    while os.getppid() != parent:
        time.sleep(0.0005)  # the end of a parent tells its child nothing
    os.setpgid(0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    link.send(str(os.getpid()).encode())
    link.close()
    return True


def enter(namespaces: List[str]) -> None:
    """Go into namespaces, of which each is a file, the one of mounts at last.

    The threads of MXNet that run already stay behind; they open neither sockets nor files.
    """
    files = [os.open(path, os.O_RDONLY) for path in namespaces]  # before the paths lead elsewhere
    LIBC.unshare(CLONE_FS if files else 0)  # MXNet's threads share it, which the kernel refuses
    for path, file in zip(namespaces, files):
        if LIBC.setns(file, 0):
            raise OSError(ctypes.get_errno(), "cannot enter", path)
        os.close(file)


def become(request: Dict[str, Any]) -> None:
    """Let this process be as if it had been started with the request's words and environment."""
    enter(request["namespaces"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["words"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # type: ignore[attr-defined]  # workers' numbers differ


def next_worker(link: socket.socket) -> bool:
    """Fork workers; return True in each, and False here when nobody asks any more."""
    while True:
        room = socket.CMSG_SPACE(STREAMS * array.array("i").itemsize)
        message, ancillary, _, _ = link.recvmsg(REQUEST_BYTES, room)
        if not message:
            return False
        streams = array.array("i")
        for _, _, data in ancillary:
            streams.frombytes(data)
        request = json.loads(message)
        if fork_worker(link, request, list(streams)):
            become(request)
            return True
        for descriptor in streams:
            os.close(descriptor)


def main_module(path: str) -> types.ModuleType:
    """Return an empty `__main__` for the script at `path`."""
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(
        __file__=path, __builtins__=__builtins__, __cached__=None, __loader__=loader
    )
    return module


if __name__ == "__main__":
    for name in (sys.argv[1], *LATE.get(sys.argv[1], [])):
        importlib.import_module(name)
    single_threaded()
    gc.freeze()  # or each worker's last collection copies every page of the framework
    # The descriptors of the worker take the places of 0 to 2.
    if next_worker(socket.socket(fileno=os.dup(0))):
        main = sys.modules["__main__"] = main_module(sys.argv[0])
        source = main.__loader__.get_source("__main__")  # type: ignore[union-attr]
        exec(compile(source, sys.argv[0], "exec"), vars(main))

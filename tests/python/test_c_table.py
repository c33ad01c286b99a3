"""The table of C functions, through which a shared object that links nothing of ours sums."""

import ctypes
import pathlib
import shutil
import subprocess

import pytest
from inline_snapshot import snapshot
from roles import role

from bytescheduler._core import Gate, Node, Worker, c_api, version
from bytescheduler.errors import Closed, UsageError

HERE = pathlib.Path(__file__).resolve().parent
CALLED_OFF = 3


class CError(ctypes.Structure):
    """See bs_error."""

    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 1024)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    out = tmp_path_factory.mktemp("guest") / "guest.so"
    include = HERE.parents[1] / "include"
    command = [compiler, "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([*command, str(HERE / "table_guest.c"), "-o", str(out)], check=True)
    library = ctypes.CDLL(str(out))
    library.guest_version.restype = ctypes.c_char_p
    return library


def table() -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = get(c_api(), b"bytescheduler.c_api")
    return address


def connect(guest: ctypes.CDLL, place: int, gate: int = 0) -> str:
    """Return the refusal; empty: it has taken the table."""
    error = CError()
    code = guest.guest_connect(ctypes.c_void_p(place), ctypes.c_void_p(gate), ctypes.byref(error))
    assert (code == 0) == (error.code == 0)
    return error.message.decode()


def test_a_shared_object_sums_through_the_table(guest: ctypes.CDLL) -> None:
    scheduler = Node.start(role("scheduler", 0, workers=1))
    server = Node.start(role("server", scheduler.port, workers=1))
    worker = Worker.open(role("worker", scheduler.port, workers=1))
    gate = Gate(worker)
    assert connect(guest, table(), gate.address) == ""
    assert guest.guest_version().decode() == version()
    sent, received, start = [(ctypes.c_float * 3)(*v) for v in ([1, 2, 3], [0] * 3, [0] * 3)]
    worker.broadcast([(7, 0, ctypes.addressof(start), 12)], owner=start)
    end, error = CError(), CError()

    def push() -> int:
        code: int = guest.guest_push_pull(
            ctypes.c_uint64(7),
            sent,
            received,
            ctypes.c_uint64(12),
            ctypes.byref(end),
            ctypes.byref(error),
        )
        return code

    assert push() == 0
    gate.wait()
    assert gate.pending() == 0
    assert (end.code, list(received)) == (0, [1, 2, 3])
    with pytest.raises(UsageError, match="before its worker"):
        worker.close()
    gate.shut()
    gate.shut()
    worker.close()
    # A thread that runs on after the end of the worker gets an error.
    assert push() == CALLED_OFF
    assert error.message.decode() == snapshot("this worker has left the job")
    with pytest.raises(Closed):
        Gate(worker)
    server.close()
    scheduler.close()


def test_another_version_and_a_shorter_table_are_refused(guest: ctypes.CDLL) -> None:
    head = (ctypes.c_uint32 * 2).from_address(table())
    size = head[1]
    assert list(head) == [1, size]
    other = (ctypes.c_uint32 * 64)(2, size)
    assert connect(guest, ctypes.addressof(other)) == snapshot(
        "the table of bytescheduler's functions has version 2, and this library wants version 1: "
        "compile it against the installed bytescheduler"
    )
    other = (ctypes.c_uint32 * 64)(1, size - 8)
    refusal = connect(guest, ctypes.addressof(other))
    assert f"has {size - 8} bytes, and this library wants {size}: compile it" in refusal

"""Ctrl-C ends the waits of TensorFlow, and nothing else does."""

import gc
import hashlib
import os
import signal
import socket
import threading
import time
import weakref
from typing import List

import pytest

pytest.importorskip("tensorflow")

from bytescheduler.tensorflow._engine.interrupts import Interrupts  # noqa: E402

PATIENCE_S = 30
_ROUNDS = 2_000_000


def interrupted() -> None:
    """Get Ctrl-C during a second or more in C, as in a graph that comes to its waits late."""
    killer = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
    killer.start()
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", _ROUNDS)  # no handler runs meanwhile
    time.sleep(PATIENCE_S)


def test_ctrl_c_calls_the_function_until_the_handler_has_run() -> None:
    calls: List[None] = []
    interrupts = Interrupts(lambda: calls.append(None))
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    time.sleep(0.1)
    number = len(calls)
    assert number > 2
    time.sleep(0.1)
    assert len(calls) == number
    interrupts.close()
    interrupts.close()
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_script_keeps_the_waits() -> None:
    called = threading.Event()
    interrupts = Interrupts(called.set)
    earlier = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        assert not called.wait(0.1)
    finally:
        signal.signal(signal.SIGINT, earlier)
        interrupts.close()


def test_a_descriptor_of_another_owner_stays() -> None:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    try:
        Interrupts(lambda: None).close()
        assert signal.set_wakeup_fd(-1) == writer.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        reader.close()
        writer.close()


def test_a_descriptor_of_a_later_owner_stays() -> None:
    interrupts = Interrupts(lambda: None)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    try:
        interrupts.close()
        assert signal.set_wakeup_fd(-1) == writer.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        reader.close()
        writer.close()


def test_an_end_on_another_thread_leaves_no_closed_descriptor_to_the_process() -> None:
    interrupts = Interrupts(lambda: None)
    ending = threading.Thread(target=interrupts.close)
    ending.start()
    ending.join()
    kept = signal.set_wakeup_fd(-1)
    os.fstat(kept)  # it is open
    signal.set_wakeup_fd(kept)
    following = Interrupts(lambda: None)  # it takes the place
    assert signal.getsignal(signal.SIGINT) == following._handle
    following.close()
    assert signal.set_wakeup_fd(-1) == -1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_object_of_an_earlier_job_is_freed() -> None:
    interrupts = Interrupts(lambda: None)
    interrupts.close()
    reference = weakref.ref(interrupts)
    del interrupts
    gc.collect()
    assert reference() is None


def test_a_forked_child_has_no_descriptor() -> None:
    interrupts = Interrupts(lambda: None)
    child = os.fork()
    if child == 0:
        os._exit(0 if signal.set_wakeup_fd(-1) == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    interrupts.close()
    assert signal.set_wakeup_fd(-1) == -1

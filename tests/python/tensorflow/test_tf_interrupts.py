"""Ctrl-C ends the waits of TensorFlow, and nothing else does."""

import os
import signal
import socket
import threading
import time

import pytest

pytest.importorskip("tensorflow")

from bytescheduler.tensorflow._engine.interrupts import Interrupts  # noqa: E402

PATIENCE_S = 30


def interrupted() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE_S)


def test_ctrl_c_calls_the_function_until_it_is_closed() -> None:
    called = threading.Event()
    interrupts = Interrupts(called.set)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert called.wait(PATIENCE_S)
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

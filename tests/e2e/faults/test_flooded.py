"""A stranger floods a server of a job that trains: it goes on, with the memory that it had."""

import re
import socket
import struct
import time
from typing import Callable, List

import pytest
from job import Job, Process

MakeJob = Callable[..., Job]
MOST_GROWTH_KIB = 64 << 10
FLOOD_S = 3.0
MOST_BYTES = 1 << 32


def stranger(port: int) -> socket.socket:
    """Return a connection that has spoken the handshake of a DEALER without an identity."""
    one = socket.create_connection(("127.0.0.1", port), timeout=FLOOD_S)
    kind = b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    ready = b"\x05READY" + kind
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    one.sendall(greeting + bytes([4, len(ready)]) + ready)
    return one


def flood(port: int) -> int:
    """Send messages of all sizes for some seconds, by connections that begin anew.

    Returns how many bytes the kernel took, of which each connection's buffers hold some megabytes.
    """
    sent = 0
    end = time.monotonic() + FLOOD_S
    meta = b"\x08\x01" * 20
    messages = b"".join(
        bytes([1, len(meta)]) + meta + b"\x02" + struct.pack(">Q", 1 << bits) + b"x" * (1 << bits)
        for bits in range(17)
    )
    open_ones: List[socket.socket] = []
    while time.monotonic() < end and sent < MOST_BYTES:
        while len(open_ones) < 8:
            open_ones.append(stranger(port))
        for one in list(open_ones):
            try:
                one.sendall(messages)
                sent += len(messages)
            except OSError:
                one.close()
                open_ones.remove(one)
    for one in open_ones:
        one.close()
    return sent


def steps_of(worker: Process) -> int:
    """Return how many steps it has made, about; it has checked their sums."""
    return int(re.findall(r"^step (\d+)$", worker.output(), re.M)[-1])


@pytest.mark.serial
def test_a_flood_of_a_stranger_costs_a_server_no_memory(
    make_job: MakeJob, free_port: Callable[[], int]
) -> None:
    port = free_port()
    job = make_job(workers=1, ports=[0, port])
    server = job.servers[0]
    worker = job.start_worker("cases/cases.py", "native", "train_for_long")
    worker.wait_for_line("training")
    before = server.kib("VmRSS")
    steps = steps_of(worker)

    assert flood(port) > 4 * MOST_GROWTH_KIB << 10
    assert steps_of(worker) >= steps + 20, job.all_output()  # hundreds, on an idle machine
    assert server.kib("VmHWM") - before < MOST_GROWTH_KIB, job.all_output()  # the peak
    assert worker.running(), job.all_output()
    assert server.running(), job.all_output()
    assert re.search(r"(dropped bytes from|hung up on) 127\.0\.0\.1", server.output())
    worker.kill()
    for process in job.processes:
        process.wait()

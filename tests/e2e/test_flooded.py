"""A stranger floods a server of a job that trains: it goes on, with the memory that it had."""

import re
import time
from typing import Callable

import zmq
from job import Job, Process, free_port

MakeJob = Callable[..., Job]
MOST_GROWTH_KIB = 64 << 10
FLOOD_S = 3.0
MOST_BYTES = 1 << 30


def flood(port: int) -> int:
    """Send frames of all sizes for some seconds, by connections that begin anew; return bytes."""
    sent = 0
    end = time.monotonic() + FLOOD_S
    with zmq.Context() as context:
        sockets = [context.socket(zmq.DEALER) for _ in range(8)]
        for one in sockets:
            one.linger = 0
            one.reconnect_ivl = 10
            one.reconnect_ivl_max = 10
            one.connect(f"tcp://127.0.0.1:{port}")
        turn = 0
        while time.monotonic() < end and sent < MOST_BYTES:
            turn += 1
            frames = [b"\x08\x01" * 20, b"x" * (1 << turn % 18)]
            for one in sockets:
                try:
                    one.send_multipart(frames, zmq.NOBLOCK)
                    sent += sum(map(len, frames))
                except zmq.Again:
                    time.sleep(0.001)
        for one in sockets:
            one.close()
    return sent


def steps_of(worker: Process) -> int:
    """Return how many steps it has made, about; it has checked their sums."""
    return int(re.findall(r"^step (\d+)$", worker.output(), re.M)[-1])


def test_a_flood_of_a_stranger_costs_a_server_no_memory(make_job: MakeJob) -> None:
    port = free_port()
    job = make_job(workers=1, ports=[0, port])
    server = job.servers[0]
    worker = job.start_worker("cases.py", "native", "train_for_long")
    worker.wait_for_line("training")
    before = server.kib("VmRSS")
    steps = steps_of(worker)
    assert flood(port) > 8 << 20
    assert steps_of(worker) >= steps + 20, job.all_output()  # hundreds, on an idle machine
    assert server.kib("VmHWM") - before < MOST_GROWTH_KIB, job.all_output()  # the peak
    assert worker.running(), job.all_output()
    assert server.running(), job.all_output()
    assert re.search(r"(dropped bytes from|hung up on) 127\.0\.0\.1", server.output())
    worker.kill()
    for process in job.processes:
        process.wait()

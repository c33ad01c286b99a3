"""What a stock worker may send that MXNet's own never does, as bytes on the wire."""

import struct
from typing import Callable

import numpy as np
from job import Job
from stock_peer import ACK, HEARTBEAT, StockPeer, decode, heartbeat

MakeJob = Callable[..., Job]
KEY = struct.pack("<Q", 3)
VALUES = np.arange(4, dtype=np.float32).tobytes()
SOON_S = 30.0


def peer_of(job: Job, early_heartbeats: int = 0) -> StockPeer:
    port = int(job.processes[0].output().split("listening on 127.0.0.1:")[1].split()[0])
    return StockPeer(port, early_heartbeats)


def test_a_request_without_values_ends_its_sender_and_the_job(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=1)
    with peer_of(job) as peer:
        peer.ask(1, [KEY, VALUES], push=True)
        _, answer, _ = peer.receive()
        assert answer[8] == [1]
        peer.ask(2, [KEY], push=True)
        sender, end, frames = peer.receive()
        assert (sender, end[4], end[12], frames) == (b"ps8", [0], [1], [])
        for process in job.processes:
            assert process.wait(SOON_S) == 1
            said = "a request of worker 0 makes no sense: 1 data frames, want 2 or 3"
            assert said in process.output()


def test_what_is_sent_again_is_acknowledged_and_counts_once(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=1)
    with peer_of(job) as peer:
        for number in (1, 2):  # the first is the initial value
            peer.ask(number, [KEY, VALUES], push=True)
            _, answer, _ = peer.receive()
            assert answer[8] == [number]
        peer.ask(2, [KEY, VALUES], push=True)
        _, ack, _ = peer.receive()
        control = decode(bytes(ack[3][0]))
        assert (control[1], control[4]) == ([ACK], [9 << 40 | 8 << 32 | 2 << 1 | 1])
        peer.barrier()
        sender, ack, _ = peer.receive()
        control = decode(bytes(ack[3][0]))
        assert (sender, control[1]) == (b"ps1", [ACK])
        assert control[4] == [9 << 40 | 1 << 32 | 1 << 1 | 1]
        peer.ask(3, [KEY, b""], push=False)
        _, ack, _ = peer.receive()
        assert decode(bytes(ack[3][0]))[1] == [ACK]
        _, answer, frames = peer.receive()
        assert (answer[8], frames[1]) == ([3], VALUES)


def test_heartbeats_are_dropped_before_a_registration_and_answered_after_it(
    make_job: MakeJob,
) -> None:
    job = make_job(workers=1, servers=1)
    with peer_of(job, early_heartbeats=3) as peer:
        said = "dropped a message from an anonymous peer: control of a node that has not registered"
        assert said in job.processes[0].output()
        peer.root.send(heartbeat(peer.own, 2))
        sender, answer, _ = peer.receive()
        control = decode(bytes(answer[3][0]))
        assert (sender, control[1]) == (b"ps1", [HEARTBEAT])
        assert decode(bytes(control[2][0]))[2] == [1]
        peer.ask(1, [KEY, VALUES], push=True)
        sender, answer, _ = peer.receive()
        assert (sender, answer[8]) == (b"ps8", [1])

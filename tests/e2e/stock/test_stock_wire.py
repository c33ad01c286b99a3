"""Stock workers as bytes on the wire: what MXNet's own never send, and many of them."""

import contextlib
import re
import struct
from typing import Callable, List

import numpy as np
import pytest
from job import Job
from stock_peer import ACK, HEARTBEAT, STOP_SERVER, StockPeer, decode, heartbeat, stock_peers

MakeJob = Callable[..., Job]
KEY = struct.pack("<Q", 3)
VALUES = np.arange(4, dtype=np.float32).tobytes()
SOON_S = 30.0


def peers_of(
    job: Job, count: int = 1, early_heartbeats: int = 0
) -> "contextlib.AbstractContextManager[List[StockPeer]]":
    port = int(job.processes[0].output().split("listening on 127.0.0.1:")[1].split()[0])
    return stock_peers(port, count, early_heartbeats)


def test_a_request_without_values_ends_its_sender_and_the_job(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=1)
    with peers_of(job) as [peer]:
        peer.ask(1, [KEY, VALUES], push=True)
        _, answer, _ = peer.receive()
        assert answer[8] == [1]
        peer.ask(2, [KEY], push=True)
        said = "a request of worker 0 makes no sense: 1 data frames, want 2 or 3"
        _, word, _ = peer.receive()
        assert decode(bytes(word[3][0]))[1] == [ACK]
        assert word[2] == [b"bytescheduler: " + said.encode()]
        sender, end, frames = peer.receive()
        assert (sender, end[4], end[12], frames) == (b"ps8", [0], [1], [])
        for process in job.processes:
            assert process.wait(SOON_S) == 1
            assert said in process.output()


def test_a_resent_message_is_acknowledged_and_counts_once(make_job: MakeJob) -> None:
    job = make_job(workers=1, servers=1)
    with peers_of(job) as [peer]:
        for number in (1, 2):  # the first is the initial value
            peer.ask(number, [KEY, VALUES], push=True)
            _, answer, _ = peer.receive()
            assert answer[8] == [number]
        peer.ask(2, [KEY, VALUES], push=True)
        _, ack, _ = peer.receive()
        control = decode(bytes(ack[3][0]))
        assert (control[1], control[4]) == ([ACK], [9 << 40 | 8 << 32 | 2 << 1 | 1])
        peer.barrier(1)
        sender, ack, _ = peer.receive()
        control = decode(bytes(ack[3][0]))
        assert (sender, control[1]) == (b"ps1", [ACK])
        assert control[4] == [9 << 40 | 1 << 32 | 1 << 1 | 1]
        peer.ask(3, [KEY, b""], push=False)
        _, ack, _ = peer.receive()
        assert decode(bytes(ack[3][0]))[1] == [ACK]
        _, answer, frames = peer.receive()
        assert (answer[8], frames[1]) == ([3], VALUES)


@pytest.mark.parametrize("whom", ["server", "root"])
def test_a_worker_that_lives_and_is_heard_no_more_is_named_and_ended(
    make_job: MakeJob, whom: str
) -> None:
    job = make_job(workers=1, servers=1)
    with peers_of(job) as [peer]:
        peer.ask(1, [KEY, VALUES], push=True)
        peer.receive()
        getattr(peer, whom).close()
        why = "connection closed, and no other opened in 1 s"
        said, end, frames = "", decode(b""), [b""]
        while end.get(12) != [1]:  # and what else scheduler node and server say
            said += str(end.get(2))
            _, end, frames = peer.receive()
        assert why in said
        assert frames == []
        host = re.escape(peer.host)
        for process in job.processes:
            assert process.wait(SOON_S) == 1
            assert re.search(rf"lost worker 0 \({host}:\d+\): {why}", process.output())


def test_heartbeats_are_dropped_before_a_registration_and_answered_after_it(
    make_job: MakeJob,
) -> None:
    job = make_job(workers=1, servers=1)
    with peers_of(job, early_heartbeats=3) as [peer]:
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


def test_a_hundred_and_thirty_workers(make_job: MakeJob) -> None:
    """Their ids need more than a byte; an ACK has the lowest of it only."""
    count = 130
    job = make_job(workers=count, servers=1)
    with peers_of(job, count) as peers:
        assert [peer.id for peer in peers] == list(range(9, 268, 2))
        peers[0].ask(1, [KEY, VALUES], push=True)
        peers[0].receive()
        for rank, peer in enumerate(peers):
            mine = np.full(4, rank + 1, np.float32)
            peer.ask(2, [KEY, mine.tobytes()], push=True)
        for peer in peers:
            _, answer, _ = peer.receive()
            assert answer[8] == [2]
        for peer in peers:
            peer.ask(3, [KEY, b""], push=False)
        for peer in peers:
            *_, frames = peer.receive()
            got = np.frombuffer(frames[1], np.float32)
            np.testing.assert_array_equal(got, np.full(4, count * (count + 1) / 2, np.float32))
        peers[-1].ask(2, [KEY, VALUES], push=True)
        _, ack, _ = peers[-1].receive()
        assert decode(bytes(ack[3][0]))[4] == [(267 & 0xFF) << 40 | 8 << 32 | 2 << 1 | 1]
        peers[0].command(STOP_SERVER, 4)
        for peer in peers:
            peer.barrier(2)
        for process in job.processes:
            assert process.wait(SOON_S) == 0, job.all_output()

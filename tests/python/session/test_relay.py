"""Bytes of one worker for all: few keys, whatever the number of bytes."""

import os
from typing import Any

from relaying import relaying_sessions

from bytescheduler._session.relay import Relay

MIB = 1 << 20


def test_bytes_arrive_as_they_are_and_share_a_few_keys() -> None:
    sessions = relaying_sessions()
    relays = [Relay(session) for session in sessions]
    for size in (0, 1, 4096, 4097, 4 * MIB, 4 * MIB + 1, 17 * MIB):
        theirs = os.urandom(size)
        first, second = bytearray(theirs), bytearray(size)
        for relay, data in zip(relays, (first, second)):
            relay.broadcast(memoryview(data), 0)
        assert first == second == theirs
    worker: Any = sessions[0]._worker
    assert len(set(worker.keys)) <= 8
    # Four of 4 MiB, and one of 2 MiB: servers keep no large message.
    assert len({key for key, for_good in worker.given_back if not for_good}) == 5
    for session in sessions:
        session.close()

"""Ports that are reserved until a process listens there."""

import errno
import socket
from typing import List

import pytest
from inline_snapshot import snapshot

from bytescheduler._process.ports import TRIES, Ports


def test_each_port_is_another_one() -> None:
    with Ports() as ports:
        assert len({ports.free() for _ in range(50)}) == 50


def test_the_ports_that_follow_are_reserved_too() -> None:
    with Ports() as ports:
        first = ports.free(following=3)
        for port in range(first, first + 4):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with socket.create_server(("127.0.0.1", port)):
                pass


@pytest.mark.parametrize("number_taken", [2, TRIES])
def test_where_another_process_has_the_next_one_it_looks_further(
    monkeypatch: pytest.MonkeyPatch, number_taken: int
) -> None:
    with Ports() as others, Ports() as ports:
        hold = ports._hold
        before: List[int] = []  # the ports that another process has

        def hold_after_another(port: int) -> int:
            if port != 0 and len(before) < number_taken:
                before.append(port - 1)
                others._hold(port)
            return hold(port)

        monkeypatch.setattr(ports, "_hold", hold_after_another)
        if number_taken < TRIES:
            assert ports.free(following=1) not in before
        else:
            with pytest.raises(OSError, match="2 free ports") as raised:
                ports.free(following=1)
            assert str(raised.value) == snapshot(
                "[Errno 98] found no 2 free ports in a row in 100 tries"
            )
        assert len(before) == number_taken


def test_a_lack_of_descriptors_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with Ports() as ports:
        hold = ports._hold

        def refuse(port: int) -> int:
            if port != 0:
                raise OSError(errno.EMFILE, "Too many open files")
            return hold(port)

        monkeypatch.setattr(ports, "_hold", refuse)
        with pytest.raises(OSError, match="Too many open files"):
            ports.free(following=1)


def test_a_row_that_would_end_beyond_the_last_port_is_not_begun() -> None:
    with Ports() as ports, pytest.raises(OSError, match="found no 65536 free ports in a row"):
        ports.free(following=65535)


def test_the_system_gives_it_to_no_other_process() -> None:
    with Ports() as ports:
        reserved = {ports.free() for _ in range(200)}
        others = []
        for _ in range(2000):
            others.append(socket.socket())
            others[-1].bind(("127.0.0.1", 0))
        assert not reserved & {other.getsockname()[1] for other in others}
        for other in others:
            other.close()


def test_connections_do_not_take_it() -> None:
    with Ports() as ports, socket.create_server(("127.0.0.1", 0), backlog=2000) as listener:
        reserved = {ports.free() for _ in range(200)}
        ends = [socket.create_connection(listener.getsockname()) for _ in range(1000)]
        assert not reserved & {end.getsockname()[1] for end in ends}
        for end in ends:
            end.close()


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
def test_a_process_that_names_it_can_listen_there(address: str) -> None:
    with Ports() as ports:
        port = ports.free()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for _ in range(2):  # again after its end, as a node that is restarted
            with socket.create_server((address, port)) as listener:
                socket.create_connection(("127.0.0.1", port)).close()
                listener.accept()[0].close()


def test_at_the_end_it_is_free_again() -> None:
    with Ports() as ports:
        port = ports.free()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))

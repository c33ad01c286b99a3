"""Ports that are reserved until a process listens there."""

import socket

import pytest

from bytescheduler._launch.ports import Ports


def test_each_port_is_another_one() -> None:
    with Ports() as ports:
        assert len({ports.free() for _ in range(50)}) == 50


def test_those_that_follow_are_reserved_too() -> None:
    with Ports() as ports:
        first = ports.free(following=3)
        for port in range(first, first + 4):
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
            with socket.create_server(("127.0.0.1", port)):
                pass


def test_where_another_process_has_the_next_one_it_looks_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Ports() as others, Ports() as ports:
        hold = ports._hold
        taken = []

        def hold_after_another(port: int) -> int:
            if port != 0 and len(taken) < 2:
                taken.append(port - 1)
                others._hold(port)
            return hold(port)

        monkeypatch.setattr(ports, "_hold", hold_after_another)
        assert ports.free(following=1) not in taken
        assert len(taken) == 2
    with Ports() as ports, pytest.raises(OSError, match="no 70000 free ports in a row in "):
        ports.free(following=69999)


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

"""Connections to a node with several addresses, and the reasons why none comes up."""

import socket

import pytest
from inline_snapshot import snapshot

from bytescheduler._process.reach import reach


def test_the_connection_is_used_and_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as node:
        port = node.getsockname()[1]
        used = reach("127.0.0.1", port, lambda ours: ours, uses_files=False, limit_s=60)
    assert used[0] is not None
    assert used[0].fileno() == -1
    assert used[1] == ""


def test_a_failed_address_is_followed_by_the_next_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs_up(_: socket.socket) -> bool:
        raise OSError("it hung up")

    with socket.create_server(("127.0.0.1", 0)) as node:
        where = node.getsockname()
        row = (socket.AF_INET, socket.SOCK_STREAM, 6, "", where)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [row, row])
        found, why = reach("a", where[1], hangs_up, uses_files=False, limit_s=60)
    assert found is None
    assert why == f"127.0.0.1:{where[1]}: it hung up, 127.0.0.1:{where[1]}: it hung up"


@pytest.mark.parametrize("name", ["nosuch.invalid", "a..b", "a" * 64 + ".b"])
def test_a_name_without_addresses_is_the_reason(name: str) -> None:
    found, why = reach(name, 9, lambda _: True, uses_files=False, limit_s=1)
    assert found is None
    assert why.startswith(f"the name {name} cannot be resolved: ")


def test_a_file_that_is_not_there_is_named() -> None:
    _, why = reach("", 1, lambda _: True, uses_files=True, limit_s=1)
    assert why == snapshot("/tmp/1: No such file or directory")

"""Jobs whose nodes meet by IPv6."""

import socket

import pytest

from bytescheduler._settings import Settings
from bytescheduler.mxnet._choice.meeting import meets_by_ipv6


@pytest.mark.parametrize(
    ("host", "meets"),
    [
        *(("", False), ("10.0.0.1", False), ("::1", True), ("[fd00::1]", True)),
        ("nosuch.invalid", False),
    ],
)
def test_an_address_in_numbers_tells_its_kind(host: str, meets: bool) -> None:
    assert meets_by_ipv6(Settings.of({"DMLC_PS_ROOT_URI": host})) is meets


@pytest.mark.parametrize(
    ("families", "meets"),
    [
        ([socket.AF_INET6], True),
        ([socket.AF_INET6, socket.AF_INET], False),
        ([socket.AF_INET], False),
    ],
)
def test_a_name_with_ipv4_addresses_stands_for_these(
    monkeypatch: pytest.MonkeyPatch, families: "list[socket.AddressFamily]", meets: bool
) -> None:
    rows = [(family, socket.SOCK_STREAM, 6, "", ("", 0)) for family in families]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    assert meets_by_ipv6(Settings.of({"DMLC_PS_ROOT_URI": "sched"})) is meets

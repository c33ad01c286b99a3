"""Addresses: their text, and whether they lead to this host alone."""

import pytest

from bytescheduler._process.where import addresses_of, at, bare, is_loopback, is_own


@pytest.mark.parametrize(
    ("host", "text"), [("10.0.0.1", "10.0.0.1:9"), ("node7", "node7:9"), ("fd00::1", "[fd00::1]:9")]
)
def test_an_ipv6_host_stands_in_brackets(host: str, text: str) -> None:
    assert at(host, 9) == text


@pytest.mark.parametrize(
    ("given", "host"), [("[::1]", "::1"), ("::1", "::1"), ("node7", "node7"), ("[", "[")]
)
def test_brackets_that_a_user_wrote_are_dropped(given: str, host: str) -> None:
    assert bare(given) == host


def test_addresses_of_this_host_alone_are_known() -> None:
    assert [is_loopback(each) for each in ("127.0.1.1", "::1", "10.0.0.1", "fe80::1%lo")] == [
        *(True, True),
        *(False, False),
    ]
    assert is_own("127.0.0.1")
    assert not is_own("203.0.113.7")  # an address for documents
    assert not is_own("node7")


def test_a_name_without_an_address_has_none() -> None:
    assert addresses_of("10.0.0.1") == ["10.0.0.1"]
    assert is_loopback(addresses_of("localhost")[0])
    assert addresses_of("a..b") == []

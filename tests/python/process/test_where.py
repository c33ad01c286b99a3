"""Addresses with ports, as one text."""

import pytest

from bytescheduler._process.where import at, bare


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

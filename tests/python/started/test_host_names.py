"""Lists of hosts: Slurm's short form, and that of `bslaunch -H`."""

import re
from typing import List

import pytest

from bytescheduler._started.host_names import HostSlots, expand, read_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("vm", ["vm"]),
        ("a,b.example.org", ["a", "b.example.org"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,2]", ["n08", "n09", "n10", "n2"]),
        ("n[001-002],gpu-[7]x,last", ["n001", "n002", "gpu-7x", "last"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("fd00::1", ["fd00::1"]),
    ],
)
def test_slurm_s_short_form_is_written_out(text: str, hosts: List[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1-", "a bracket is not closed"),
        ("n1-3]", "the brackets do not match"),
        ("n[[1]]", "the brackets do not match"),
        ("n[3-1]", "the range 3-1 runs backwards"),
        ("n[a-b]", "'a-b' is no number and no range"),
        ("n[]", "'' is no number and no range"),
        ("a,,b", "'' is no host"),
        ("", "'' is no host"),
        ("a b", "'a b' is no host"),
        ("-oX", "'-oX' is no host"),
        ("n[1-9999999]", "it has more than 65536 hosts"),
        ("n[1-999][1-999]", "it has more than 65536 hosts"),
    ],
)
def test_another_text_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        expand(text)


def test_hosts_have_slots_and_users() -> None:
    assert read_hosts("host1,me@host2:2,[fd00::1]:4,fd00::2,10.0.0.1:1024") == [
        HostSlots("host1", "host1", 1),
        HostSlots("me@host2", "host2", 2),
        HostSlots("fd00::1", "fd00::1", 4),
        HostSlots("fd00::2", "fd00::2", 1),
        HostSlots("10.0.0.1", "10.0.0.1", 1024),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "a,", "a b", "a;b", "$(id)", "-oProxyCommand=x", "@a", "a@", "a@-b", "u v@a", "a/b"),
        *(
            "a:",
            "a:0",
            "a:x",
            "a:-1",
            "a:1025",
            "a:2:3",
            "[a:2",
            "[fd00::1]2",
            "a:99999999999",
            "a:²",
        ),
    ],
)
def test_a_malformed_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no host; want HOST|want 1 to 1024 slots"):
        read_hosts(text)

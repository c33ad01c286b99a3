"""RDMA in `bytescheduler doctor`: devices, the choice, and each reason for none with its cure."""

from typing import Dict, List

import pytest
from inline_snapshot import snapshot

from bytescheduler._doctor import rdma
from bytescheduler._doctor.findings import Finding
from bytescheduler._native import HostFact

NO_DEVICE = HostFact("rdma_choice", "", "this host shows no RDMA device: load the driver")
CHOICE = HostFact("rdma_choice", "mlx5_0:1", "GID 3")
DOWN = HostFact("rdma_choice", "", "mlx5_0: port 1 is DOWN: bring its link up (ip link, ibstat)")
REFUSED = HostFact("rdma_choice", "", "mlx5_0: ibv_query_port: Permission denied")
PORTS = [
    HostFact("rdma_port", "mlx5_0:1", "ACTIVE, Ethernet, MTU 4096"),
    HostFact("rdma_gid", "mlx5_0:1/2", "10.0.0.5 (RoCE v1)"),
    HostFact("rdma_gid", "mlx5_0:1/3", "10.0.0.5 (RoCE v2)"),
    HostFact("rdma_port", "mlx5_1:1", "DOWN, Ethernet"),
]


def look(facts: List[HostFact], *, enabled: str = "0") -> Dict[str, Finding]:
    found = rdma.check(facts, enabled)
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in found)
    return {finding.name: finding for finding in found}


def test_each_port_is_a_line_with_its_addresses() -> None:
    found = look([*PORTS, CHOICE])
    assert list(found)[:3] == ["mlx5_0:1", "mlx5_1:1", "rdma_choice"]
    assert found["mlx5_0:1"].text == snapshot(
        "mlx5_0:1: ACTIVE, Ethernet, MTU 4096, GID 2 10.0.0.5 (RoCE v1), GID 3 10.0.0.5 (RoCE v2)"
    )
    assert found["mlx5_1:1"].text == "mlx5_1:1: DOWN, Ethernet"
    would = "a worker or server here would use mlx5_0:1, GID 3"
    assert found["rdma_choice"].text == f"{would}, with DMLC_ENABLE_RDMA=1"
    assert look([*PORTS, CHOICE], enabled="auto")["rdma_choice"].text == would


def test_without_a_device_there_is_one_line() -> None:
    (finding,) = look([NO_DEVICE]).values()
    assert (finding.level, finding.text) == snapshot(
        (
            "ok",
            "a worker or server here uses TCP: this host shows no RDMA device",
        )
    )


def test_a_device_that_cannot_be_used_is_told_with_the_reason() -> None:
    finding = look([*PORTS, DOWN])["rdma_choice"]
    assert finding.level == "ok"
    assert finding.text == f"a worker or server here uses TCP: {DOWN.value}"


@pytest.mark.parametrize(
    ("choice", "text", "advice"),
    [
        (NO_DEVICE, "RDMA cannot be used: this host shows no RDMA device", "load the driver"),
        (
            DOWN,
            "RDMA cannot be used: mlx5_0: port 1 is DOWN",
            "bring its link up (ip link, ibstat)",
        ),
        (
            REFUSED,
            "RDMA cannot be used: mlx5_0: ibv_query_port: Permission denied",
            "install the newest rdma-core and driver of the card, or unset DMLC_ENABLE_RDMA",
        ),
    ],
)
def test_where_rdma_must_be_the_reason_is_a_problem(
    choice: HostFact, text: str, advice: str
) -> None:
    finding = look([choice], enabled="1")["rdma_choice"]
    assert (finding.level, finding.text, finding.advice) == ("problem", text, advice)


def test_a_limit_of_locked_memory_is_a_warning() -> None:
    said = "the limit of locked memory is 64 KiB: ulimit -l unlimited"
    limited, free = HostFact("rdma_memory", "", said), HostFact("rdma_memory", "", "")
    finding = look([*PORTS, CHOICE, limited])["rdma_memory"]
    assert (finding.level, finding.advice) == ("warning", "ulimit -l unlimited")
    assert finding.text == snapshot(
        "the limit of locked memory is 64 KiB, and RDMA copies what does not fit"
    )
    assert look([*PORTS, CHOICE, free])["rdma_memory"].level == "ok"


def test_children_that_may_not_touch_memory_are_a_warning() -> None:
    harmless, protected = (
        HostFact("rdma_fork", "harmless", ""),
        HostFact("rdma_fork", "protected", ""),
    )
    assert look([*PORTS, CHOICE, harmless])["rdma_fork"].level == "ok"
    finding = look([*PORTS, CHOICE, protected])["rdma_fork"]
    assert finding.level == "warning"
    assert "Linux 5.12" in finding.advice

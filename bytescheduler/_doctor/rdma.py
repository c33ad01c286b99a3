"""RDMA: devices, their ports and addresses, the one that a node would use, locked memory, fork."""

from typing import List, Sequence

from bytescheduler._doctor.findings import Finding, good, problem, split_cure, warning
from bytescheduler._native import HostFact

__all__ = ["check"]

_AREA = "rdma"
_REQUIRED = ("1", "ibverbs")
_NO_CURE = "install the newest rdma-core and driver of the card, or unset DMLC_ENABLE_RDMA"


def _rows(facts: Sequence[HostFact], kind: str) -> List[HostFact]:
    return [fact for fact in facts if fact.what == kind]


def _port(port: HostFact, facts: Sequence[HostFact]) -> Finding:
    gids = [
        f"GID {fact.name.rpartition('/')[2]} {fact.value}"
        for fact in _rows(facts, "rdma_gid")
        if fact.name.rpartition("/")[0] == port.name
    ]
    return good(_AREA, port.name, ", ".join([f"{port.name}: {port.value}", *gids]))


def _choice(facts: Sequence[HostFact], enabled: str) -> Finding:
    (choice,) = _rows(facts, "rdma_choice")
    if choice.name:
        text = f"a worker or server here would use {choice.name}, {choice.value}"
        if enabled not in (*_REQUIRED, "auto"):
            text += ", with DMLC_ENABLE_RDMA=1"
        return good(_AREA, "rdma_choice", text)
    reason, advice = split_cure(choice.value)
    if enabled not in _REQUIRED:
        text = choice.value if _rows(facts, "rdma_port") else reason
        return good(_AREA, "rdma_choice", f"a worker or server here uses TCP: {text}")
    return problem(_AREA, "rdma_choice", f"RDMA cannot be used: {reason}", advice or _NO_CURE)


def _memory(fact: HostFact) -> Finding:
    if not fact.value:
        return good(_AREA, "rdma_memory", "RDMA may lock any amount of memory")
    text, _, advice = fact.value.partition(": ")
    return warning(_AREA, "rdma_memory", f"{text}, and RDMA copies what does not fit", advice)


def _fork(fact: HostFact) -> Finding:
    if fact.name == "harmless":
        return good(_AREA, "rdma_fork", "children of a worker may use its memory as without RDMA")
    return warning(
        _AREA,
        "rdma_fork",
        "this kernel does not copy registered memory for children, so gradients are copied first",
        "Linux 5.12 or newer with rdma-core 35 or newer needs no copy",
    )


def check(facts: Sequence[HostFact], enabled: str) -> List[Finding]:
    """Look at RDMA.

    Parameters
    ----------
    facts : sequence of HostFact
        What the engine finds.
    enabled : str
        DMLC_ENABLE_RDMA: with ``1`` or ``ibverbs`` a node without RDMA does not start.
    """
    ports = _rows(facts, "rdma_port")
    findings = [_port(port, facts) for port in ports]
    findings.append(_choice(facts, enabled))
    findings += [_memory(fact) for fact in _rows(facts, "rdma_memory")]
    findings += [_fork(fact) for fact in _rows(facts, "rdma_fork")]
    return findings

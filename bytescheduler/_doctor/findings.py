"""A finding of the doctor: its level, the observation, and the advice."""

import concurrent.futures
import threading
from typing import Callable, List, NamedTuple, Sequence, Tuple, TypeVar

from bytescheduler._process.say import plain

__all__ = ["Finding", "as_text", "good", "problem", "split_cure", "warning", "within"]

_Answer = TypeVar("_Answer")


class Finding(NamedTuple):
    """One line of the report."""

    area: str  # settings, software, host, network, rdma or link
    name: str  # for scripts; the same in every version
    level: str  # ok, warning or problem
    text: str  # the finding, with the values
    advice: str  # the cure; empty if there is nothing to do


def good(area: str, name: str, text: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(area, name, "ok", text, "")


def warning(area: str, name: str, text: str, advice: str) -> Finding:
    """Return a finding that a job may live with."""
    return Finding(area, name, "warning", text, advice)


def problem(area: str, name: str, text: str, advice: str) -> Finding:
    """Return a finding with which a job will not run."""
    return Finding(area, name, "problem", text, advice)


def split_cure(message: str) -> Tuple[str, str]:
    """Split a sentence of the engine into the fault and the advice, which may be empty.

    The advice stands behind the last colon, and begins with a small letter or the name of a
    command.  A call that failed ends with the words of the system instead: ``mlx5_0:
    ibv_create_qp: Cannot allocate memory``.  They begin with a capital.
    """
    reason, colon, cure = message.rpartition(": ")
    return (reason, cure) if colon and cure[:1].islower() else (message, "")


def as_text(findings: Sequence[Finding]) -> str:
    """Return the report for a terminal: the advice stands below its finding."""
    lines: List[str] = []
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            lines.append(area)
        lines.append(f"  {finding.level:8} {plain(finding.text)}")
        if finding.advice:
            lines.append(f"           -> {plain(finding.advice)}")
    return "".join(f"{line}\n" for line in lines)


def within(limit_s: float, question: Callable[[], _Answer]) -> _Answer:
    """Ask the system for something that may take very long.

    The asking thread does not keep the process from ending.

    Raises
    ------
    TimeoutError
        There was no response in `limit_s`.
    """
    future: concurrent.futures.Future[_Answer] = concurrent.futures.Future()

    def ask() -> None:
        try:
            future.set_result(question())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=ask, name="bs-doctor", daemon=True).start()
    try:
        return future.result(limit_s)
    except concurrent.futures.TimeoutError:
        raise TimeoutError(f"no response in {limit_s:g} s") from None

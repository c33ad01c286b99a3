"""The addresses where processes show metrics, and the function that reads them there."""

from typing import Callable, List, Tuple

from bytescheduler._native import Metric

__all__ = ["MOST_PORTS", "Measure", "parse_address"]

# Processes of one host that may share a port to begin at.
MOST_PORTS = 64

Measure = Callable[[], List[Metric]]


def parse_address(text: str) -> Tuple[str, int]:
    """Return host and port of `PORT` or `HOST:PORT`, which the engine has checked."""
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)

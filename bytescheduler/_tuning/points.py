"""The space of a search: partition and credit, on a ladder of sizes, and its starting points."""

import math
from typing import NamedTuple, Tuple

__all__ = [
    "CREDITS",
    "DEFAULT",
    "PARTITIONS",
    "Point",
    "Rungs",
    "by_formula",
    "nearest",
    "on_rungs",
    "size_text",
]

KIB = 1024
# Sizes in bytes; two rungs double the size: 32, 48, 64, 96, ... KiB.
_LADDER = tuple(size * KIB << doubled for doubled in range(12) for size in (32, 48))
# The candidates for a partition, and for a credit.
PARTITIONS = tuple(size for size in _LADDER if size <= 4096 * KIB)
CREDITS = tuple(size for size in _LADDER if size <= 64 * 1024 * KIB)

# The seconds that a message costs at both ends, besides its bytes (docs/results/tables.md).
_MESSAGE_S = 25e-6
_PARTITIONS_IN_FLIGHT = 4

# Positions of partition and credit on their ladders.
Rungs = Tuple[int, int]


class Point(NamedTuple):
    """Bytes of a partition, and bytes in flight to a server."""

    partition: int
    credit: int

    def __str__(self) -> str:
        """Return the sizes as messages say them."""
        return f"{size_text(self.partition)} in {size_text(self.credit)}"


def size_text(size: int) -> str:
    """Return a size in the form of a setting."""
    for unit, text in ((KIB * KIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g}{text}"
    return str(size)


# The starting point of a job without settings.
DEFAULT = Point(128 * KIB, 512 * KIB)


def _rung(ladder: Tuple[int, ...], size: float) -> int:
    return min(range(len(ladder)), key=lambda i: abs(math.log(ladder[i] / size)))


def nearest(point: Point) -> Rungs:
    """Return the rungs with the smallest ratio to a point."""
    return _rung(PARTITIONS, point.partition), _rung(CREDITS, point.credit)


def on_rungs(rungs: Rungs) -> Point:
    """Return the point at `rungs`."""
    return Point(PARTITIONS[rungs[0]], CREDITS[rungs[1]])


def by_formula(model_bytes: float, step_s: float, num_workers: int, num_servers: int) -> Point:
    """Return the point where the costs of messages and of the last partition balance.

    Partitions of p bytes cost o for each of M/p messages, and about 2pW/B to block and to fill the
    pipeline.  The sum is least at p = sqrt(M o B / 2W).  B, the rate of a server, is at least the
    bytes that pass it in a step.
    """
    server_rate = model_bytes * num_workers / num_servers / step_s
    size = math.sqrt(model_bytes * _MESSAGE_S * server_rate / (2 * num_workers))
    partition = PARTITIONS[_rung(PARTITIONS, max(size, 1.0))]
    return Point(partition, CREDITS[_rung(CREDITS, partition * _PARTITIONS_IN_FLIGHT)])

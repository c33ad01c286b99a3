"""Carriers of the bytes of workers: TCP, shared memory or RDMA."""

from typing import Any, Dict, List, Tuple

from bytescheduler._timeline.files import Event

__all__ = ["Carriers"]

_DIRECTIONS = ("push", "pull")


class Carriers:
    """The bytes of spans, by rank, carrier and direction."""

    def __init__(self) -> None:
        self._bytes: Dict[Tuple[int, str], Dict[str, int]] = {}

    def add(self, event: Event) -> None:
        """Take a worker's span; those without a carrier, and those of no transfer, add nothing."""
        category, args = event["cat"], event["args"]
        if category not in _DIRECTIONS or "carrier" not in args:
            return
        row = self._bytes.setdefault((event["pid"] - 1, args["carrier"]), {})
        row[category] = row.get(category, 0) + args["bytes"]

    def rows(self) -> List[Dict[str, Any]]:
        """Return a row of bytes for each rank and carrier, as `timeline.summary` shows them."""
        return [
            {
                "rank": rank,
                "carrier": carrier,
                "pushed_bytes": sizes.get("push", 0),
                "pulled_bytes": sizes.get("pull", 0),
            }
            for (rank, carrier), sizes in sorted(self._bytes.items())
        ]

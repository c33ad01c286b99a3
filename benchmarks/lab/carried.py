"""The bytes that each link of a lab carries, with the headers of every frame."""

import re
import subprocess
from typing import Callable, Dict, Optional

from benchmarks.lab import lab_job

# A host, a direction and the bytes of its queue; a link without a rate has no queue that counts.
_SENT = re.compile(r"^(\d+) (up|down) bytes (\d+) ", re.M)
Counts = Dict[str, int]


def counted() -> Counts:
    """Return the bytes of each direction of each link so far; none: links have no rate."""
    asked = [str(lab_job.HERE / "netlab.sh"), "stat", lab_job.LAB]
    told = subprocess.run(asked, stdout=subprocess.PIPE, check=True, text=True).stdout
    return {f"{host} {way}": int(sent) for host, way, sent in _SENT.findall(told)}


class Links(lab_job.Watch):
    """Counts what the links carry between the first step of a job and its results.

    Parameters
    ----------
    count : callable
        As `counted`.

    Attributes
    ----------
    sent : dict of str to int
        What each direction has carried in the latest job, as "1 up"; empty: it was not counted.
    """

    def __init__(self, count: Callable[[], Counts] = counted) -> None:
        self._count = count
        self._before: Counts = {}
        self.sent: Counts = {}

    def begin(self) -> None:
        """Begin with a job whose workers are about to make their first step."""
        self.sent = {}
        self._before = self._count()

    def end(self) -> None:
        """End with a job whose workers have made all their steps."""
        now = self._count()
        self.sent = {link: now[link] - before for link, before in self._before.items()}

    def busiest(self, size_bytes: int) -> Optional[float]:
        """Return the bytes of the busiest direction over `size_bytes`; None: nothing is counted."""
        return max(self.sent.values()) / size_bytes if self.sent else None

"""The order in which pytest-xdist runs tests: what takes long begins first.

``longest_first.py RESULTS.xml`` keeps the seconds of a run (JUnit XML, as ``make python`` writes
it) in longest_first.json.  A test that stands there under no name takes less than a second.
"""

import collections
import functools
import json
import pathlib
import re
import sys
import xml.etree.ElementTree
from typing import Any, Dict, Tuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

__all__ = ["LongestFirst", "Queue", "keep", "unit_of"]

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_KEPT = pathlib.Path(__file__).with_suffix(".json")
_LEAST_S = 1.0
# Folders of long tests that have ports and files of their own.
_SPREAD = tuple(f"tests/e2e/{name}/" for name in ("faults", "jobs", "mxnet", "stock", "torch"))
# What tests of a file share; a process makes it once if it runs all of them.
_SHARED = re.compile(r"""scope=["']module|\bstock_weights\b|\bstock_results\b""")


@functools.lru_cache(maxsize=None)
def _is_whole(path: str) -> bool:
    """Return whether one process is to run all tests of a file."""
    in_jobs = path.startswith(_SPREAD)
    return not in_jobs or _SHARED.search((_ROOT / path).read_text()) is not None


def unit_of(test: str) -> str:
    """Return what goes to one process: the file of a test, or a test of whole jobs itself."""
    path = test.partition("::")[0]
    return path if _is_whole(path) else test


class Queue(collections.OrderedDict):  # type: ignore[type-arg]
    """Units by name; the first is the one that took longest."""

    def __init__(self, seconds: Dict[str, float]) -> None:
        super().__init__()
        self._seconds = seconds

    def popitem(self, last: bool = False) -> Tuple[str, Any]:
        """Return the longest unit, and remove it; of equal ones the first."""
        name = max(self, key=lambda unit: self._seconds.get(unit, 0.0))
        return name, self.pop(name)


class LongestFirst(LoadScopeScheduling):
    """Gives units to processes, the longest first."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self.workqueue = Queue(json.loads(_KEPT.read_text()))

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def seconds_of(results: pathlib.Path) -> Dict[str, float]:
    """Return the seconds of each unit of a run."""
    seconds: Dict[str, float] = collections.defaultdict(float)
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        path = case.get("classname", "").replace(".", "/") + ".py"
        seconds[unit_of(f"{path}::{case.get('name')}")] += float(case.get("time", 0.0))
    return seconds


def keep(results: pathlib.Path) -> None:
    """Write what took long in this run, and of files without a test in it what was kept before."""
    seconds = seconds_of(results)
    ran = {unit.partition("::")[0] for unit in seconds}
    before = json.loads(_KEPT.read_text()) if _KEPT.exists() else {}
    kept = {unit: s for unit, s in before.items() if unit.partition("::")[0] not in ran}
    kept.update((unit, round(s, 1)) for unit, s in seconds.items() if s >= _LEAST_S)
    _KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    keep(pathlib.Path(sys.argv[1]))

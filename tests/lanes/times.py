"""The times of a lane: of this run, in ``build/times.json``, and of the last run that was kept.

``times.py --build BUILD`` keeps the times of the last run for comparison: it writes them to
``tests/lanes/kept_times.json``, which belongs to the repository.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from typing import Dict, Optional

__all__ = ["Times", "keep", "kept_times", "read_times"]

KEPT = pathlib.Path(__file__).with_name("kept_times.json")


@dataclasses.dataclass
class Times:
    """What a run of a lane took.

    Attributes
    ----------
    lane : str
        The lane.
    passed : bool
        All steps ended, and none failed.
    processors : int
        How many processors the machine has.
    seconds : float
        Wall clock of the whole lane.
    steps : dict
        Step -> "seconds" of wall clock, "cpu_seconds" of all its processes.
    rooms : dict
        Folder of tests -> seconds of its tests.
    """

    lane: str
    passed: bool
    processors: int
    seconds: float
    steps: "Dict[str, Dict[str, float]]"
    rooms: "Dict[str, float]"

    def write(self, path: pathlib.Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")


def read_times(path: pathlib.Path) -> Times:
    """Return what `Times.write` wrote."""
    return Times(**json.loads(path.read_text()))


def kept_times(lane: str, path: pathlib.Path = KEPT) -> Optional[Times]:
    """Return the times of the last run of a lane that was kept, if there is one."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    return Times(**kept[lane]) if lane in kept else None


def keep(times: Times, path: pathlib.Path = KEPT) -> None:
    """Keep the times of a run, in whole seconds, in place of those of the same lane.

    Raises
    ------
    ValueError
        If the run failed: its times would be too short.
    """
    if not times.passed:
        raise ValueError(f"the last run of `make {times.lane}` failed, so its times are not kept")
    kept = json.loads(path.read_text()) if path.exists() else {}
    whole = dataclasses.asdict(times)
    whole["seconds"] = round(times.seconds)
    whole["steps"] = {
        step: {name: round(seconds) for name, seconds in row.items()}
        for step, row in times.steps.items()
    }
    whole["rooms"] = {room: round(seconds, 1) for room, seconds in sorted(times.rooms.items())}
    kept[times.lane] = whole
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def main() -> int:
    """Keep the times of the last run and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    path = parser.parse_args().build / "times.json"
    if not path.exists():
        print(f"There is no {path}: run `make test` first.", file=sys.stderr)
        return 1
    try:
        keep(read_times(path))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The file that keeps the result of a search for each model and cluster."""

import contextlib
import json
import os
import pathlib
import tempfile
from typing import Dict, NamedTuple, Optional

from bytescheduler._process.say import counted
from bytescheduler._tuning.points import Point

__all__ = ["Cache", "CacheError", "Place", "Remembered", "default_path"]

_KIND = "bytescheduler tuning"
_VERSION = 1
_MOST_BYTES = 1 << 20
_MOST_RESULTS = 1000


class CacheError(Exception):
    """The file is of no use; the message has the reason and the cure."""


class Place(NamedTuple):
    """The model that a result holds for, and the cluster that trains it."""

    tensors: int
    model_bytes: int
    workers: int
    servers: int
    root: str  # address of the scheduler node

    def model(self) -> str:
        """Return the half of `text` that names the model."""
        return f"{counted(self.tensors, 'tensor')}, {counted(self.model_bytes, 'byte')}"

    def cluster(self) -> str:
        """Return the half of `text` that names the cluster."""
        return f"{counted(self.workers, 'worker')}, {counted(self.servers, 'server')}, {self.root}"

    def text(self) -> str:
        """Return the name of this place in the file."""
        return f"{self.model()}; {self.cluster()}"


class Remembered(NamedTuple):
    """A result that the file has."""

    point: Point
    step_s: float  # seconds a step


def default_path() -> pathlib.Path:
    """Return the path of the file if no setting names one.

    Raises
    ------
    CacheError
        This user has no known home.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return pathlib.Path(base) / "bytescheduler" / "tuning.json"
    try:
        return pathlib.Path.home() / ".cache" / "bytescheduler" / "tuning.json"
    except RuntimeError as error:
        raise CacheError(f"{error}: set BYTESCHEDULER_TUNING_CACHE") from error


def _is_point(row: object) -> bool:
    return (
        isinstance(row, dict)
        and all(type(row.get(name)) is int for name in ("partition", "credit"))
        and 4096 <= row["partition"] <= 1 << 30
        and 1 <= row["credit"] <= 1 << 36
        and isinstance(row.get("step_s"), (int, float))
        and 0 < row["step_s"] < 1e9
    )


class Cache:
    """The file.  Two processes that write at once lose at worst the newest result of one."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __str__(self) -> str:
        """Return the path."""
        return str(self._path)

    def _read(self) -> "Dict[str, Dict[str, float]]":
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CacheError(f"{self._path}: {error.strerror}") from error
        advice = "remove it, or let BYTESCHEDULER_TUNING_CACHE name another file"
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise CacheError(f"{self._path} is not a file of tuning results; {advice}") from error
        if not isinstance(whole, dict) or whole.get("kind") != _KIND:
            raise CacheError(f"{self._path} is not a file of tuning results; {advice}")
        if whole.get("version") != _VERSION:
            raise CacheError(f"{self._path} is of another version of bytescheduler; {advice}")
        results = whole.get("results")
        if not isinstance(results, dict) or not all(map(_is_point, results.values())):
            raise CacheError(f"{self._path} has results that make no sense; {advice}")
        return results

    def find(self, place: Place) -> Optional[Remembered]:
        """Return the result for `place`, or None.

        Raises
        ------
        CacheError
            The file cannot be read.
        """
        row = self._read().get(place.text())
        if row is None:
            return None
        return Remembered(Point(int(row["partition"]), int(row["credit"])), row["step_s"])

    def other_cluster(self, place: Place) -> Optional[str]:
        """Return the latest cluster with a result for this model, if this cluster has none.

        Raises
        ------
        CacheError
            The file cannot be read.
        """
        model = place.model() + "; "
        clusters = [text[len(model) :] for text in self._read() if text.startswith(model)]
        return None if not clusters or place.cluster() in clusters else clusters[-1]

    def keep(self, place: Place, point: Point, step_s: float) -> None:
        """Add a result; beyond `_MOST_RESULTS` the oldest are dropped.

        Raises
        ------
        CacheError
            The file is no file of results, or cannot be written.
        """
        results = self._read()
        results.pop(place.text(), None)
        results[place.text()] = {**point._asdict(), "step_s": step_s}
        results = dict(list(results.items())[-_MOST_RESULTS:])
        whole = {"kind": _KIND, "version": _VERSION, "results": results}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd, new = tempfile.mkstemp(prefix=".tuning-", dir=self._path.parent)
            try:
                with os.fdopen(fd, "w") as file:
                    json.dump(whole, file, indent=1)
                    file.write("\n")
                os.replace(new, self._path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(new)
                raise
        except OSError as error:
            raise CacheError(f"{self._path}: {error.strerror}; nothing is remembered") from error

"""Remembers what was found, for each model and cluster, in a file."""

import contextlib
import json
import os
import pathlib
import tempfile
from typing import Dict, NamedTuple, Optional

from bytescheduler._tuning.points import Point

__all__ = ["Cache", "CacheError", "Place", "Remembered", "default_path"]

_KIND = "bytescheduler tuning"
_VERSION = 1
_MOST_BYTES = 1 << 20
_MOST_RESULTS = 1000


class CacheError(Exception):
    """The file is of no use; says why and what to do."""


class Place(NamedTuple):
    """What a result holds for: a model, and a cluster that trains it."""

    tensors: int
    model_bytes: int
    workers: int
    servers: int
    root: str  # address of the scheduler node

    def model(self) -> str:
        """Return its first half as the file has it."""
        return f"{self.tensors} tensors, {self.model_bytes} bytes"

    def cluster(self) -> str:
        """Return its other half."""
        return f"{self.workers} workers, {self.servers} servers, {self.root}"

    def text(self) -> str:
        """Return it as the file has it."""
        return f"{self.model()}; {self.cluster()}"


class Remembered(NamedTuple):
    """What was found."""

    point: Point
    step_s: float


def default_path() -> pathlib.Path:
    """Return where results are if no setting says so.

    Raises
    ------
    CacheError
        Nobody knows this user's home.
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
    """The file.  Processes that write at once lose at worst one another's newest result."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    def __str__(self) -> str:
        """Return where it is."""
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
        """Return what was found there, if anything.

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
        """Return the latest cluster that trained this model if this one never did.

        Raises
        ------
        CacheError
            The file cannot be read.
        """
        model = place.model() + "; "
        clusters = [text[len(model) :] for text in self._read() if text.startswith(model)]
        return None if not clusters or place.cluster() in clusters else clusters[-1]

    def keep(self, place: Place, point: Point, step_s: float) -> None:
        """Remember; the newest results if there are very many.

        Raises
        ------
        CacheError
            The file is not ours, or cannot be written.
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

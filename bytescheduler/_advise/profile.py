"""Profiles of models: layers with bytes and times, as files, and out of timelines.

A file is JSON: ``{"bytescheduler_profile": 1, "layers": [{"name": "conv1", "bytes": 7168,
"forward_s": 0.001, "backward_s": 0.002}, ...]}``, layers in the order of forward.
"""

import json
import math
import os
import statistics
import warnings
from typing import Any, Dict, List, Optional, Union

from bytescheduler._advise.models import Step
from bytescheduler._process.replaced import replaced
from bytescheduler._timeline import steps as _timeline_steps
from bytescheduler._timeline.files import KEY_NAME, TimelineWarning, merge
from bytescheduler.errors import ConfigError

__all__ = ["ProfileError", "from_timeline", "read", "write"]

Path = Union[str, "os.PathLike[str]"]

_VERSION = 1
_MARK = "bytescheduler_profile"
_MOST_LAYERS = 100_000
_MOST_BYTES = 1 << 44
_MOST_S = 1e5
_MOST_TEXT = 64 << 20  # that is read of a file, or of what has no end
_LEAST_STEPS = 3
_RECORD = "record one with: bytescheduler launch --local --record FILE -- python train.py"


class ProfileError(ConfigError):
    """A file is no profile, or nothing can be made of what was recorded."""


def _number(value: object, most: float) -> Optional[float]:
    """Return a number from 0 to `most`, or None if it is none; NaN is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
        return None
    return value


def _layer(row: object, index: int) -> Step:
    if not isinstance(row, dict):
        raise ProfileError(f"layer {index} is no object with name, bytes, forward_s, backward_s")
    name = row.get("name", f"layer{index}")
    if not isinstance(name, str):
        raise ProfileError(f"layer {index}: 'name' is no text")
    size = _number(row.get("bytes"), _MOST_BYTES)
    if size is None or int(size) != size:
        raise ProfileError(f"layer {index} ({name!r}): 'bytes' is not a whole number from 0")
    times = []
    for time in ("forward_s", "backward_s"):
        found = _number(row.get(time), _MOST_S)
        if found is None:
            raise ProfileError(
                f"layer {index} ({name!r}): {time!r} is not a number of seconds from 0"
            )
        times.append(float(found))
    return Step(name, int(size), times[0], times[1])


def _layers(content: object) -> List[Step]:
    if not isinstance(content, dict) or _MARK not in content:
        raise ProfileError("it is JSON, but no profile of bytescheduler")
    if content[_MARK] != _VERSION:
        raise ProfileError(f"it is of version {content[_MARK]!r}, this is for version {_VERSION}")
    rows = content.get("layers")
    if not isinstance(rows, list) or not rows:
        raise ProfileError("it has no layers")
    if len(rows) > _MOST_LAYERS:
        raise ProfileError(f"it has more than {_MOST_LAYERS} layers")
    layers = [_layer(row, index) for index, row in enumerate(rows)]
    if math.fsum(layer.forward_s + layer.backward_s for layer in layers) <= 0:
        raise ProfileError("its layers take no time")
    return layers


def read(path: Path) -> List[Step]:
    """Return the layers of a profile, in the order of forward.

    Raises
    ------
    ProfileError
        The file cannot be read, is cut off, or is no profile; one line with its name, what is wrong
        and what to do.
    """
    name = os.fspath(path)
    try:
        try:
            with open(name, "rb") as file:
                text = file.read(_MOST_TEXT + 1)
            content = None if len(text) > _MOST_TEXT else json.loads(text)
        except OSError as error:
            raise ProfileError(f"it cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ProfileError("it is not JSON, or cut off") from error
        if len(text) > _MOST_TEXT:
            raise ProfileError(f"it has more than {_MOST_TEXT >> 20} MiB")
        return _layers(content)
    except ProfileError as error:
        raise ProfileError(f"{name or repr(name)}: {error}; {_RECORD}", 1) from error.__cause__


def write(layers: List[Step], path: Path) -> None:
    """Write a profile; a file that is there is replaced, whole or not at all.

    Raises
    ------
    OSError
        It cannot be written.
    """
    rows = [
        {
            "name": layer.name,
            "bytes": layer.size_bytes,
            "forward_s": round(layer.forward_s, 9),
            "backward_s": round(layer.backward_s, 9),
        }
        for layer in layers
    ]
    text = json.dumps({_MARK: _VERSION, "layers": rows}, indent=1) + "\n"
    with replaced(path) as file:
        file.write(text.encode())


_Rounds = Dict[_timeline_steps.Where, _timeline_steps.Step]


class _Recorded:
    """The steps that a worker's timeline has."""

    def __init__(self, path: str) -> None:
        self.names: Dict[int, str] = {}
        self.sizes: Dict[int, int] = {}
        rounds: _Rounds = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TimelineWarning)  # an end that is missing harms nothing
            for event in merge([path]):
                self._add(event, rounds)
        steps = _timeline_steps.in_step(rounds)
        ordered = [steps[where] for where in sorted(steps)]
        self.steps = ordered[1:]  # the first is not like the others

    def _add(self, event: Dict[str, Any], rounds: _Rounds) -> None:
        if event.get("name") == KEY_NAME:
            self.names[event["args"]["key"]] = event["args"]["name"]
        spans = event.get("ph") == "X" and event.get("cat") in _timeline_steps.OF_WORKERS
        if not spans or event["args"]["round"] == 0:
            return
        _timeline_steps.add(rounds, event)
        if event["cat"] == "tensor":
            self.sizes[event["args"]["key"]] = event["args"]["bytes"]


def from_timeline(path: Path) -> List[Step]:
    """Return the layers of the model that a worker trained while it wrote the timeline `path`.

    The backward time of a layer is the time from the gradient before it to its own.  The rest of a
    step lasts from the sum of the tensor that is ready last to the first gradient of the next step.
    It is forward and the backward of the last layer.  Forward is taken for a third of all compute,
    and each layer gets the same share of it as of backward.

    Raises
    ------
    ProfileError
        There are fewer than three steps in it besides the first.
    TimelineError
        It is no timeline.
    """
    recorded = _Recorded(os.fspath(path))
    keys = [
        key
        for key in recorded.sizes
        if 2 * sum(key in step for step in recorded.steps) > len(recorded.steps)
    ]
    if len(recorded.steps) < _LEAST_STEPS or not keys:
        raise ProfileError(
            f"only {len(recorded.steps)} whole steps were recorded, want {_LEAST_STEPS} besides the"
            " first: let the script train longer"
        )
    begins = [min(tensor.begin for tensor in step.values()) for step in recorded.steps]
    ready = {
        key: statistics.median(
            step[key].begin - begin for step, begin in zip(recorded.steps, begins) if key in step
        )
        for key in keys
    }
    order = sorted(keys, key=lambda key: ready[key])  # the last layer first
    first = order[-1]
    rest = statistics.median(
        max(0.0, begin - step[first].end)
        for step, begin in zip(recorded.steps, begins[1:])
        if first in step
    )
    backward = [0.0, *(ready[key] - ready[before] for before, key in zip(order, order[1:]))]
    compute = rest + ready[first]
    forward = min(rest, compute / 3)
    backward[0] = rest - forward
    all_backward = math.fsum(backward) or 1.0
    return [
        Step(
            recorded.names.get(key, str(key)),
            recorded.sizes[key],
            forward * time / all_backward,
            time,
        )
        for key, time in reversed(list(zip(order, backward)))
    ]

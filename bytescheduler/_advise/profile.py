"""Profiles of models: layers with bytes and times, as files, and out of timelines.

A file is JSON: ``{"bytescheduler_profile": 1, "framework": "torch", "layers": [{"name": "conv1",
"bytes": 7168, "forward_s": 0.001, "backward_s": 0.002}, ...]}``, layers in the order of forward.
A file need not say its framework.
"""

import itertools
import json
import math
import os
import statistics
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Union

from bytescheduler._advise.models import Step
from bytescheduler._process.numbers import shortened
from bytescheduler._process.replaced import replaced
from bytescheduler._process.say import counted
from bytescheduler._timeline import steps as _timeline_steps
from bytescheduler._timeline.files import FRAMEWORK, KEY_NAME, TimelineWarning, merge
from bytescheduler.errors import ConfigError

__all__ = ["FRAMEWORKS", "Profile", "ProfileError", "from_timeline", "read", "write"]

Path = Union[str, "os.PathLike[str]"]

FRAMEWORKS = ("torch", "tensorflow", "mxnet")
_VERSION = 1
_MARK = "bytescheduler_profile"
_MOST_LAYERS = 100_000
_MOST_BYTES = 1 << 44
_MOST_S = 1e5
_MOST_TEXT = 64 << 20  # that is read of a file, or of what has no end
_LEAST_STEPS = 3
# Shares of a step's compute.  Priorities whose order is contradicted for longer than the first are
# not believed; gradients within the second of each other are ready at one moment.
_DOUBT = 0.25
_MOMENT = 0.02
_RECORD = "record one with: bytescheduler launch --local --record FILE -- python train.py"


class ProfileError(ConfigError):
    """A file is no profile, or nothing can be made of what was recorded."""


class Profile(NamedTuple):
    """A model as it was trained."""

    layers: List[Step]  # in the order of forward
    framework: str = ""  # one of FRAMEWORKS, or empty: not known


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
        seconds = _number(row.get(time), _MOST_S)
        if seconds is None:
            raise ProfileError(
                f"layer {index} ({name!r}): {time!r} is not a number of seconds from 0"
            )
        times.append(float(seconds))
    return Step(name, int(size), times[0], times[1])


def _profile(content: object) -> Profile:
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
    framework = content.get("framework", "")
    if framework not in ("", *FRAMEWORKS):
        raise ProfileError(
            f"'framework' is {shortened(str(framework))}: want one of {', '.join(FRAMEWORKS)}"
        )
    return Profile(layers, framework)


def read(path: Path) -> Profile:
    """Return the profile that is in a file.

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
        return _profile(content)
    except ProfileError as error:
        raise ProfileError(f"{name or repr(name)}: {error}; {_RECORD}", 1) from error.__cause__


def write(profile: Profile, path: Path) -> None:
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
        for layer in profile.layers
    ]
    framework = {"framework": profile.framework} if profile.framework else {}
    text = json.dumps({_MARK: _VERSION, **framework, "layers": rows}, indent=1) + "\n"
    with replaced(path) as file:
        file.write(text.encode())


_Rounds = Dict[_timeline_steps.Where, _timeline_steps.Step]


class _Recorded:
    """The steps that a worker's timeline has."""

    def __init__(self, path: str) -> None:
        self.framework = ""
        self.names: Dict[int, str] = {}
        self.named_again: Dict[int, int] = {}  # keys to places in forward
        self.sizes: Dict[int, int] = {}
        rounds: _Rounds = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TimelineWarning)  # an end that is missing harms nothing
            for event in merge([path]):
                self._add(event, rounds)
        steps = _timeline_steps.in_step(rounds)
        ordered = [steps[rank_and_round] for rank_and_round in sorted(steps)]
        self.steps = ordered[1:]  # the first is not like the others

    def _add(self, event: Dict[str, Any], rounds: _Rounds) -> None:
        if event.get("name") == FRAMEWORK:
            self.framework = event["args"]["framework"]
        if event.get("name") == KEY_NAME:
            key, name = event["args"]["key"], event["args"]["name"]
            # A worker repeats names as soon as it knows the order of forward, in that order.
            if self.names.get(key) == name:
                self.named_again[key] = len(self.named_again)
            self.names[key] = name
        spans = event.get("ph") == "X" and event.get("cat") in _timeline_steps.OF_WORKERS
        if not spans or event["args"]["round"] == 0:
            return
        _timeline_steps.add(rounds, event)
        if event["cat"] == "tensor":
            self.sizes[event["args"]["key"]] = event["args"]["bytes"]


def from_timeline(path: Path) -> Profile:
    """Return the model that a worker trained while it wrote the timeline `path`.

    The backward time of a layer is the time from the gradient before it to its own.  Gradients that
    are ready at one moment share that time by their sizes.  The rest of a step lasts from the sum
    of the tensor that is ready last to the first gradient of the next step.  It is forward and the
    backward of the last layer.  Forward is taken for a third of all compute, and each layer gets
    the same share of it as of backward.

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
            f"only {counted(len(recorded.steps), 'whole step')} recorded, want "
            f"{_LEAST_STEPS} besides the first: let the script train longer"
        )
    begins = [min(tensor.begin for tensor in step.values()) for step in recorded.steps]
    ready = {
        key: statistics.median(
            step[key].begin - begin for step, begin in zip(recorded.steps, begins) if key in step
        )
        for key in keys
    }
    last = max(keys, key=lambda key: ready[key])
    rest = statistics.median(
        max(0.0, begin - step[last].end)
        for step, begin in zip(recorded.steps, begins[1:])
        if last in step
    )
    compute = rest + ready[last]
    forward = min(rest, compute / 3)
    order = _forward_order(recorded, ready, compute)
    backward = _backward(recorded.sizes, ready, order, rest - forward)
    all_backward = math.fsum(backward.values()) or 1.0
    layers = [
        Step(
            recorded.names.get(key, str(key)),
            recorded.sizes[key],
            forward * backward[key] / all_backward,
            backward[key],
        )
        for key in order
    ]
    return Profile(layers, recorded.framework if recorded.framework in FRAMEWORKS else "")


def _forward_order(recorded: _Recorded, ready: Dict[int, float], compute: float) -> List[int]:
    """Return the keys in the order of forward.

    A worker may know it.  Else it is the order of the priorities, unless gradients become ready in
    another order; of gradients of one moment the priorities decide.
    """
    if all(key in recorded.named_again for key in ready):
        return sorted(ready, key=lambda key: recorded.named_again[key])
    urgency = {
        key: statistics.median(step[key].priority for step in recorded.steps if key in step)
        for key in ready
    }
    order = sorted(ready, key=lambda key: (-urgency[key], -ready[key]))
    earliest, worst = math.inf, 0.0
    for key in order:  # the gradient of the first is ready last
        worst = max(worst, ready[key] - earliest)
        earliest = min(earliest, ready[key])
    if worst <= _DOUBT * compute:
        return order
    moments: List[List[int]] = []
    for key in sorted(ready, key=lambda key: -ready[key]):
        if moments and ready[moments[-1][-1]] - ready[key] <= _MOMENT * compute:
            moments[-1].append(key)
        else:
            moments.append([key])
    return [key for moment in moments for key in sorted(moment, key=lambda key: -urgency[key])]


def _backward(
    sizes: Dict[int, int], ready: Dict[int, float], order: List[int], last: float
) -> Dict[int, float]:
    """Return each key's time of backward; `last` is that of the last layer."""
    times: Dict[int, float] = {}
    before, moment = -last, []
    keys = order[::-1]
    rest = [*itertools.accumulate((ready[key] for key in order), min)][::-1]
    for key, following in zip(keys, [*rest[1:], math.inf]):
        moment.append(key)
        latest = max(ready[ready_key] for ready_key in moment)
        if latest >= following:  # others are ready no later, though their backward comes later
            continue
        size = sum(max(1, sizes[ready_key]) for ready_key in moment)
        times.update(
            {ready_key: (latest - before) * max(1, sizes[ready_key]) / size for ready_key in moment}
        )
        before, moment = latest, []
    return times

"""Records a profile while a job runs: out of the timeline of its worker 0."""

import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
from typing import Callable, Dict, Optional

from bytescheduler._advise import profile
from bytescheduler._launch.local_job import Job
from bytescheduler._process.folder import temporary_folder
from bytescheduler._process.say import counted, plain, say
from bytescheduler.errors import Error

__all__ = ["LEAST_STEPS", "SETTING", "record"]

SETTING = "BYTESCHEDULER_TIMELINE"
# MXNet joins up to 15 operations.  The gradients of several layers are then ready at the same
# moment, which hides their order and the time of each.  For gradients of the same moment the
# script's own priorities decide, which a measured order would replace.
_PRECISE = {"MXNET_EXEC_BULK_EXEC_TRAIN": "0", "BYTESCHEDULER_PRIORITY": "caller"}
# Fewer make no profile: three besides the first must be whole.
LEAST_STEPS = 5


class StepsWritten:
    """Watches for a number of steps in the timeline that a worker is writing.

    A step is a round of most of the keys.  Each look reads the events since the last look.
    """

    def __init__(self, path: pathlib.Path, steps: int) -> None:
        self._path = path
        self._steps = steps
        self._read = 0
        self._rounds: Dict[int, int] = {}

    def __call__(self) -> bool:
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:  # not there yet; the end reports other faults of the file
            return False
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            if b'"cat":"tensor"' in line:
                args = json.loads(line.strip().rstrip(b","))["args"]
                self._rounds[args["key"]] = args["round"]
        # The next step has begun, so this many are whole.
        return bool(self._rounds) and statistics.median_low(self._rounds.values()) > self._steps


def record(job: Job, path: str, run: Callable[[Job], int], steps: Optional[int] = None) -> int:
    """Run `job` by `run`, then write the profile of its worker 0's training to `path`.

    With `steps` the job is ended once worker 0 has trained that many, and that is a good end.
    Returns the job's exit code, or 1 if that is 0 and there is no profile.  A job that fails or is
    stopped after some steps has a profile too.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(temporary_folder())
        except Error as error:
            say(f"bytescheduler: no profile can be recorded: {error}")
            return 1
        timeline = folder / "timeline.json"
        of_worker = timeline.with_name("timeline-r0.json")
        precise = {name: v for name, v in _PRECISE.items() if name not in os.environ}
        code = run(
            dataclasses.replace(
                job,
                env={**precise, **job.env, SETTING: str(timeline), "BYTESCHEDULER_TUNING": "off"},
                enough=None if steps is None else StepsWritten(of_worker, steps),
            )
        )
        try:
            if not of_worker.exists():
                raise profile.ProfileError(
                    "worker 0 trained nothing natively: does the script use bytescheduler?"
                )
            recorded = profile.from_timeline(of_worker)
            profile.write(recorded, path)
        except (Error, OSError) as error:
            reason = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            say(plain(f"bytescheduler: no profile was recorded: {reason}"))
            return code or 1
    layers = recorded.layers
    size = sum(layer.size_bytes for layer in layers) / 1e6
    compute = sum(layer.forward_s + layer.backward_s for layer in layers)
    say(
        plain(
            f"bytescheduler: {os.fspath(path)}: {counted(len(layers), 'tensor')}, {size:.1f} MB, "
            f"{compute:.3f} s of compute a step; next: bytescheduler advise {path} --rate 1gbit"
        )
    )
    return code

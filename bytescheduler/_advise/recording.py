"""Records a profile while a job runs: out of the timeline of its worker 0."""

import dataclasses
import os
import pathlib
import tempfile
from typing import Callable

from bytescheduler._advise import profile
from bytescheduler._local_job import Job
from bytescheduler._say import plain, say
from bytescheduler.errors import Error

__all__ = ["SETTING", "record"]

SETTING = "BYTESCHEDULER_TIMELINE"


def record(job: Job, path: str, run: Callable[[Job], int]) -> int:
    """Run `job` by `run`, then write the profile of what its worker 0 trained to `path`.

    Returns the job's exit code, or 1 if that is 0 and there is no profile.  A job that fails or is
    stopped after some steps has one too.
    """
    with tempfile.TemporaryDirectory() as folder:
        timeline = pathlib.Path(folder) / "timeline.json"
        code = run(dataclasses.replace(job, env={**job.env, SETTING: str(timeline)}))
        of_worker = timeline.with_name("timeline-r0.json")
        try:
            if not of_worker.exists():
                raise profile.ProfileError(
                    "worker 0 trained nothing natively: does the script use ScheduledKVS?"
                )
            layers = profile.from_timeline(of_worker)
            profile.write(layers, path)
        except (Error, OSError) as error:
            why = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            say(plain(f"bytescheduler: no profile was recorded: {why}"))
            return code or 1
    size = sum(layer.size_bytes for layer in layers) / 1e6
    compute = sum(layer.forward_s + layer.backward_s for layer in layers)
    say(
        plain(
            f"bytescheduler: {os.fspath(path)}: {len(layers)} tensors, {size:.1f} MB, "
            f"{compute:.3f} s of compute a step; next: bytescheduler advise {path} --rate 1gbit"
        )
    )
    return code

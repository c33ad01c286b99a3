"""Jobs of PyTorch that show metrics and tune themselves, as those of MXNet do."""

import time
from typing import Callable

from job import Job
from looked_at import look_at

MakeJob = Callable[..., Job]
TUNED = {
    "BYTESCHEDULER_TUNING": "once",
    "BYTESCHEDULER_TUNING_CACHE": "tuning.json",
    "BYTESCHEDULER_LOG_LEVEL": "debug",
    "PYTHONPATH": "",  # the model of what was measured needs scipy
}


def test_metrics_show_steps_and_bytes_and_the_partitions_are_tuned(
    make_job: MakeJob, free_port: Callable[..., int]
) -> None:
    port = free_port(following=3)  # each process of the job listens on the next
    job = make_job(env={"BYTESCHEDULER_METRICS": str(port)})
    for _ in range(2):
        job.start_worker("torch/watched.py", env=TUNED)
    for worker in job.workers:
        worker.wait_for_line("under way")
    found = look_at(port, 3)
    end = time.monotonic() + 60
    while job.all_output().count(" from the next rounds on") < 2 and time.monotonic() < end:
        time.sleep(0.2)
    changes = job.all_output().count(" from the next rounds on")
    (job.folder / "stop").touch()
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    for row in found["workers"]:
        assert row["steps_per_s"] > 0
        assert row["pushed_bytes_per_s"] > 0
    assert found["servers"][0]["rounds_per_s"] > 0
    assert changes > 1, job.all_output()
    # The last layers' gradients are ready first, and their weights are used last.
    renumbered = "the priorities of 12 tensors are those of the order in which they become ready"
    assert renumbered in job.all_output()

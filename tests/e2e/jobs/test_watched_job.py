"""A job of real processes, looked at while it runs."""

from typing import Callable

from job import Job
from looked_at import look_at

MakeJob = Callable[..., Job]


def test_top_shows_the_work_of_the_processes_and_the_late_worker(
    make_job: MakeJob, free_port: Callable[..., int]
) -> None:
    port = free_port(following=3)  # each process of the job listens on the next
    job = make_job(env={"BYTESCHEDULER_METRICS": str(port)})
    for _ in range(2):
        job.start_worker("steps/looked_at_worker.py")
    for process in job.processes:
        process.wait_for_line("shows metrics at http://127.0.0.1:")
    for worker in job.workers:
        worker.wait_for_line("under way")
    found = look_at(port, 3)
    (job.folder / "stop").touch()
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    assert [row["rank"] for row in found["workers"]] == [0, 1]
    for row in found["workers"]:
        assert row["steps_per_s"] > 0
        assert row["pushed_bytes_per_s"] > 0
        assert not row["failed"]
    assert [row["rank"] for row in found["servers"]] == [0]
    assert found["servers"][0]["rounds_per_s"] > 0
    late = found["stragglers"][0]
    assert late["worker"] == 1
    assert late["waited_share"] > 0.5
    assert late["wait_s"] > 0.01

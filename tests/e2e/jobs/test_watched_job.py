"""A job of real processes, looked at while it runs."""

import json
from typing import Callable

from click_runner import runner
from job import Job

from bytescheduler import cli

MakeJob = Callable[..., Job]


def test_top_shows_what_the_processes_do_and_who_is_late(
    make_job: MakeJob, free_port: Callable[[], int]
) -> None:
    port = free_port()
    job = make_job(env={"BYTESCHEDULER_METRICS": str(port)})
    for _ in range(2):
        job.start_worker("steps/looked_at_worker.py")
    for process in job.processes:
        process.wait_for_line("shows metrics at http://127.0.0.1:")
    for worker in job.workers:
        worker.wait_for_line("under way")
    look = ["top", "--once", "--json", "--interval", "2", str(port)]
    for _ in range(10):  # on a busy machine one may not answer in time
        result = runner().invoke(cli._cli, look)
        found = json.loads(result.stdout or "{}")
        rows = [*found.get("workers", []), *found.get("servers", [])]
        if len(rows) == 3 and all(row["answers"] for row in rows):
            break
    (job.folder / "stop").touch()
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    assert result.exit_code == 0, result.stderr
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

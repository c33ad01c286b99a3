"""Jobs of PyTorch whose workers host the servers, with a scheduler node of its own process."""

import json
import re
import sys
from typing import Callable

import pytest
from job import WORKERS, Job
from launched import BSLAUNCH, run
from looked_at import look_at

MakeJob = Callable[..., Job]
LOCAL = [*BSLAUNCH, "--local", "-s", "0", "-w"]
IDENTITY = "torch/identity.py"


@pytest.mark.parametrize(("workers", "more"), [(2, {}), (3, {"BYTESCHEDULER_DETERMINISTIC": "1"})])
def test_variables_alone_give_the_weights_of_one_process(
    make_job: MakeJob, workers: int, more: "dict[str, str]"
) -> None:
    env = {"BYTESCHEDULER_TIMELINE": "t.json", **more}
    job = make_job(workers=workers, servers=0, env=env)
    for output in job.run(IDENTITY, "sgd"):
        assert "sgd is the same" in output
    told = f"direct job of {workers} workers, each with a server in its process"
    assert job.all_output().count(told) == 1
    timelines = sorted(path.name for path in job.folder.glob("t-*.json"))
    assert timelines == [f"t-{role}{rank}.json" for role in "rs" for rank in range(workers)]
    for name in timelines:
        assert json.loads((job.folder / name).read_text())


def test_bslaunch_gives_the_weights_of_one_process() -> None:
    done = run([*LOCAL, "2", "--", sys.executable, str(WORKERS / IDENTITY), "sgd"])
    for rank in range(2):
        assert f"[worker {rank}] sgd is the same\n" in done.stdout


def test_each_worker_and_each_hosted_server_shows_metrics(
    make_job: MakeJob, free_port: Callable[..., int]
) -> None:
    port = free_port(following=4)  # the scheduler node, and the worker and the server of two
    job = make_job(servers=0, env={"BYTESCHEDULER_METRICS": str(port)})
    for _ in range(2):
        job.start_worker("torch/watched.py")
    for worker in job.workers:
        worker.wait_for_line("under way")
    found = look_at(port, 4)
    (job.folder / "stop").touch()
    for process in job.processes:
        assert process.wait() == 0, job.all_output()
    for rows, rate in ((found["workers"], "steps_per_s"), (found["servers"], "rounds_per_s")):
        assert sorted(row["rank"] for row in rows) == [0, 1]
        assert all(row[rate] > 0 for row in rows)


def test_a_killed_worker_is_named_by_all_and_by_bslaunch() -> None:
    faults = str(WORKERS / "torch_faults/faults.py")
    done = run([*LOCAL, "3", "--", sys.executable, faults, "dies"], code=128 + 9)
    for rank in (0, 2):
        lost = rf"^\[worker {rank}\] .*\blost worker 1 \((its server )?127\."
        assert re.search(lost, done.stdout, re.M), done.stdout
    assert "bslaunch: worker 1 was ended by SIGKILL; ending the job\n" in done.stdout

"""Every kind of store that MXNet has works under ours, in a process alone and under bslaunch."""

import os
import pathlib
import subprocess
import sys
import warnings
from typing import Callable

import pytest
from job import PATIENCE_S, WORKERS, Job

MakeJob = Callable[..., Job]


@pytest.mark.parametrize("backend", ["passthrough", "native"])
def test_stores_of_one_process_train_as_without_us(make_job: MakeJob, backend: str) -> None:
    """Several stores of each kind in turn, in the one place that the process has in the job."""
    for kind in ("local", "device", "teststore"):
        job = make_job(workers=1)
        job.start_worker("cases/wrapped_stores.py", kind, env={"BYTESCHEDULER_BACKEND": backend})
        assert job.workers[0].wait() == 0, job.all_output()
        said = job.workers[0].output()
        # What others have made is used as it is by the only worker of a job.
        native = backend == "native" and kind != "teststore"
        assert ("native back end carries the bytes" in said) is native


@pytest.mark.parametrize(
    ("kind", "van"), [("dist_device_sync", "zmq"), ("dist_sync", "p3")], ids=["device", "p3"]
)
def test_dist_stores_of_two_workers_get_the_native_back_end(
    tmp_path: pathlib.Path, kind: str, van: str
) -> None:
    """As users start them: the stock store that the line makes is served beside ours."""
    command = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "2"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "BYTESCHEDULER_"))}
    done = subprocess.run(
        [*command, "--", sys.executable, str(WORKERS / "cases/wrapped_stores.py"), "native", kind],
        cwd=tmp_path,
        env={**env, "DMLC_PS_VAN_TYPE": van, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("native back end carries the bytes (2 workers, 2 servers;") == 2
    assert done.stdout.count("well done") == 2


def runs_well(job: Job) -> bool:
    """Run two workers of P3 on stock servers; False if they hang."""
    for _ in range(2):
        job.start_worker("cases/wrapped_stores.py", "p3")
    try:
        codes = [worker.wait(60) for worker in job.workers]
    except AssertionError:
        return False
    assert codes == [0, 0], job.all_output()
    return True


@pytest.mark.filterwarnings("default:P3 hung")
def test_p3_on_stock_servers_is_passed_on(make_job: MakeJob) -> None:
    # P3 hangs without us too (2 of 40 runs of the same calls on a bare store): three chances.
    jobs = []
    for _ in range(3):
        jobs.append(make_job(stock=True, env={"DMLC_PS_VAN_TYPE": "p3"}))
        if runs_well(jobs[-1]):
            break
    else:
        raise AssertionError("".join(job.all_output() for job in jobs))
    if len(jobs) > 1:
        warnings.warn(f"P3 hung in {len(jobs) - 1} of {len(jobs)} runs", stacklevel=1)
    for worker in jobs[-1].workers:
        assert "unscheduled: P3 partitions and orders its tensors itself" in worker.output()
        assert "well done" in worker.output()

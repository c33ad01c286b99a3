"""A job with a secret: its nodes work together, and nobody else gets in."""

import pathlib
from typing import Callable

from job import Job

MakeJob = Callable[..., Job]


def secret_file(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_nodes_that_share_a_secret_work_together(make_job: MakeJob, tmp_path: pathlib.Path) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    job = make_job(servers=2, env={"BYTESCHEDULER_SECRET_FILE": secret})
    job.run("cases.py", "native", "sums", "order")


def test_a_worker_without_the_secret_or_with_another_stays_outside(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    other = secret_file(tmp_path, "other", "another secret of this test\n")
    job = make_job(
        env={"BYTESCHEDULER_SECRET_FILE": secret, "BYTESCHEDULER_TIMEOUT": "10s"},
    )
    job.start_worker("join.py", env={"BYTESCHEDULER_SECRET_FILE": ""})
    job.start_worker("join.py", env={"BYTESCHEDULER_SECRET_FILE": other})
    for process in job.processes:
        assert process.wait() != 0, job.all_output()
    for worker in job.workers:
        assert "refused the handshake: do both have the same" in worker.output(), worker.output()
    scheduler = job.processes[0].output()
    assert "refused a connection whose handshake failed" in scheduler
    assert "waiting for 2 of 2 workers" in scheduler

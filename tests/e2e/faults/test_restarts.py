"""A server is killed and started again at once, and then the whole job, on the same ports."""

import pathlib
import re
import time
from typing import Callable, Dict

import pytest
from job import Job

MakeJob = Callable[..., Job]
FreePort = Callable[[], int]
STEPS, STEPS_A_LIFE = 60, 15
# Less than the time-outs below, and than the default ones: no node waits for them.
SOON_S = 24.0
SETTINGS = {
    "BYTESCHEDULER_PARTITION": "4KiB",  # so that every sum needs both servers
    "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "150s",
}
REJOIN = {"BYTESCHEDULER_REJOIN_TIMEOUT": "60s"}


@pytest.mark.parametrize(("deaths", "rejoin"), [(3, {}), (1, REJOIN)], ids=["", "rejoin"])
def test_a_server_that_is_killed_and_started_again_ends_the_job_which_begins_again_at_once(
    make_job: MakeJob,
    free_port: FreePort,
    tmp_path: pathlib.Path,
    deaths: int,
    rejoin: "Dict[str, str]",
) -> None:
    """Again and again on the same ports; every step of every life counts once in the end."""
    ports = [free_port() for _ in range(3)]

    def start() -> Job:
        job = make_job(servers=2, ports=ports, env={**SETTINGS, **rejoin})
        for _ in range(2):
            job.start_worker("steps/restarted_worker.py", str(tmp_path / "checkpoint"), str(STEPS))
        return job

    for life in range(1, deaths + 1):
        job = start()
        for worker in job.workers:
            worker.wait_for_line(f"step {life * STEPS_A_LIFE} done")
        lost = job.servers[1]
        lost.kill()
        # It may come so late that there is nobody to tell it.
        late = {"BYTESCHEDULER_TIMEOUT": "8s"}
        again = job.start_server(1, f"server 1 of life {life + 1}", env=late)
        text = rf"lost server \d \(127\.0\.0\.1:{ports[2]}\): connection closed"
        for process in job.processes:
            if process is lost:
                continue
            assert process.wait(SOON_S) not in (0, None), job.all_output()
            assert re.search(text, process.output()) or process is again, job.all_output()
            if rejoin and process is not again:
                assert "start the job again from your last checkpoint" in process.output()
        # Where it came is over, or about to be.
        assert re.search(text + "|came too late|no response from the sch", again.output())
    job = start()
    for process in [*job.workers, *job.processes]:
        assert process.wait() == 0, job.all_output()
    for worker in job.workers:
        assert "every step counts once" in worker.output(), job.all_output()
        began = re.search(r"begins with \S+ after (\d+) steps", worker.output())
        assert began is not None
        assert int(began.group(1)) >= deaths * STEPS_A_LIFE


@pytest.mark.serial
def test_sixty_four_nodes_of_one_host_have_a_first_sum_in_ten_seconds(make_job: MakeJob) -> None:
    """The scheduler node itself gives them no more: it would end the job, naming who is missing.

    By then all workers have a first sum too, of which every server makes a part.
    """
    began = time.monotonic()
    env = {
        "BYTESCHEDULER_TIMEOUT": "10s",
        "BYTESCHEDULER_STRAGGLER_TIMEOUT": "10s",
        "BYTESCHEDULER_PARTITION": "4KiB",
    }
    job = make_job(workers=32, servers=31, env=env)
    outputs = job.run("steps/first_sum.py")
    assert "all nodes are there: 32 workers, 31 servers" in job.processes[0].output()
    summed = [float(output.split("summed at ")[1].split()[0]) for output in outputs]
    assert max(summed) - began < 10.0, (began, summed)

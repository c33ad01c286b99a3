"""Faults of jobs whose nodes are hosts of their own: what the survivors say, and what is summed.

Each test prints after how long who ended (``pytest -rP``); docs/operate/reliability.md has the
figures.
"""

import pathlib
import re
import signal
import subprocess
import time
from typing import Callable, Dict, Iterator, Tuple

import pytest
from host_job import (
    CUT,
    HOSTS,
    PORTS,
    SCHEDULER,
    SERVERS,
    SOON_S,
    WORKERS,
    assert_all_name,
    assert_every_step_counts_once,
    ends_of,
    node_of,
    start,
    step_of,
    wait_for_step,
)
from job import Job
from kills import any_seed, soak
from lab import Lab, NoLab, hosts_or_skip

MakeJob = Callable[..., Job]
VICTIMS = {"scheduler": SCHEDULER, "server": SERVERS[1], "worker": WORKERS[1]}
SHORT_S, LONG_S = 1.0, 6.0
# Of the first server and the first worker; stdout stays a file, for the test to read.
STDERR_OF_SOME = [
    *("sh", "-c", 'case $(hostname) in lab-2|lab-4) exec "$@" 2>stderr; esac; exec "$@"', "sh")
]
FILL = ["sh", "-c", "cat /dev/zero >filler 2>/dev/null; df --output=avail . | grep -qw 0"]
FILL_LOG = "cat /dev/zero >>bytescheduler.log 2>/dev/null; true"
PATIENT = {**CUT, "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "150s"}
REJOIN = {"BYTESCHEDULER_HEARTBEAT_TIMEOUT": "150s", "BYTESCHEDULER_REJOIN_TIMEOUT": "60s"}
PATIENCE = r"5 s \(BYTESCHEDULER_HEARTBEAT_TIMEOUT\)"
STRICT = {
    **CUT,
    "BYTESCHEDULER_HEARTBEAT_INTERVAL": "200ms",
    "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "5s",
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with hosts_or_skip(lambda: Lab(HOSTS)) as hosts:
        yield hosts


@pytest.fixture(params=["open", "secret"])
def security(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> "Dict[str, str]":
    """Return the settings of a job that talks over TCP of our own, or encrypted, over libzmq."""
    if request.param == "open":
        return {}
    secret = tmp_path / "secret"
    secret.write_text("a secret of all nodes of this job")
    secret.chmod(0o600)
    return {"BYTESCHEDULER_SECRET_FILE": str(secret)}


def start_and_make_five_steps(job: Job, folder: pathlib.Path, steps: int) -> None:
    start(job, folder, steps)
    wait_for_step(job, 5)


@pytest.mark.parametrize("who", VICTIMS)
def test_a_killed_node_is_named(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, security: "Dict[str, str]", who: str
) -> None:
    job = make_job(servers=2, env={**PATIENT, **security}, lab=lab)
    start_and_make_five_steps(job, tmp_path, 100_000)
    victim = job.processes[VICTIMS[who]]
    victim.kill()
    others = [process for process in job.processes if process is not victim]
    assert_all_name(job, others, rf"lost {node_of(lab, VICTIMS[who])}: connection closed")


def test_a_server_that_is_killed_and_started_again_is_named_and_the_job_begins_again(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path
) -> None:
    for life in (1, 2):
        job = make_job(servers=2, env=PATIENT, lab=lab, ports=PORTS)
        start(job, tmp_path, 20 * life)
        if life == 2:
            assert_every_step_counts_once(job)
            assert "begins with 0 " not in job.workers[0].output()
            return
        wait_for_step(job, 10)
        victim = job.servers[1]
        victim.kill()
        again = job.start_server(1, "server 1 again")
        others = [process for process in job.processes if process not in (victim, again)]
        text = rf"lost server \d \({re.escape(lab.address(SERVERS[1]))}:{PORTS[2]}\): connection"
        assert_all_name(job, others, text)
        assert_all_name(job, [again], text + "|came too late|no response from the sch")


@pytest.mark.parametrize(
    "script",
    [
        ("steps/rejoining_worker.py", "wrapped", "0", "2", "20"),
        ("steps/rejoining_in_step.py", "owed", "0"),
    ],
    ids=["ours of dist_async", "MXNet's own of dist_sync"],
)
def test_a_killed_worker_is_replaced_from_another_host_and_every_push_counts_once(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, script: "Tuple[str, ...]"
) -> None:
    job = make_job(servers=2, env=REJOIN, lab=lab)
    for _ in WORKERS:
        job.start_worker(*script, str(tmp_path))
    lost = job.wait_for_text(job.workers, "to be killed")
    lost.kill()
    began = time.monotonic()
    job.start_worker(*script, str(tmp_path))
    job.wait_for_text([job.processes[SCHEDULER]], "takes the place of the one that was lost")
    print(f"its place is taken after {time.monotonic() - began:.1f} s")
    for process in job.processes:
        assert process is lost or process.wait() == 0, job.all_output()
    said = job.processes[SCHEDULER].output()
    # Of two hosts the later one has worker 0.
    assert f"lost worker 0 ({lab.address(WORKERS[1])}:" in said, said
    taken = rf"worker 0 \({re.escape(lab.address(WORKERS[0]))}:\d+\) takes the place"
    assert re.search(taken, said), said
    for worker in job.workers:
        assert worker is lost or "well done" in worker.output(), job.all_output()


def print_three_steps_after(job: Job, fault: str) -> None:
    began, step = time.monotonic(), step_of(job)
    wait_for_step(job, step + 3)
    print(f"{fault}: three steps {time.monotonic() - began:.2f} s after it")


def assert_costs_time_only(
    job: Job, folder: pathlib.Path, harm: "Callable[[int], None]", mend: "Callable[[int], None]"
) -> None:
    """Let a host of each role suffer for a while, one after the other."""
    start(job, folder, 150)
    wait_for_step(job, 5)
    for who, host in VICTIMS.items():
        harm(host)
        time.sleep(SHORT_S)
        mend(host)
        print_three_steps_after(job, who)
    assert_every_step_counts_once(job)


def test_a_process_that_stops_for_a_while_costs_time_only(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, security: "Dict[str, str]"
) -> None:
    job = make_job(servers=2, env={**PATIENT, **security}, lab=lab)

    def signals(number: int) -> "Callable[[int], None]":
        return lambda host: job.processes[host].signal(number)

    assert_costs_time_only(job, tmp_path, signals(signal.SIGSTOP), signals(signal.SIGCONT))


def test_a_host_with_a_link_that_goes_down_and_up_costs_time_only(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, security: "Dict[str, str]"
) -> None:
    job = make_job(servers=2, env={**PATIENT, **security}, lab=lab)
    assert_costs_time_only(
        job, tmp_path, lambda host: lab.link(host, "down"), lambda host: lab.link(host, "up")
    )


def test_a_host_with_a_slow_link_costs_time_only(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path
) -> None:
    job = make_job(servers=2, env=PATIENT, lab=lab)
    assert_costs_time_only(
        job, tmp_path, lambda host: lab.rate(host, "2mbit"), lambda host: lab.rate(host, "1gbit")
    )


@pytest.mark.parametrize("who", VICTIMS)
def test_a_process_that_stops_for_too_long_is_named(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, security: "Dict[str, str]", who: str
) -> None:
    job = make_job(servers=2, env={**STRICT, **security}, lab=lab)
    start_and_make_five_steps(job, tmp_path, 100_000)
    victim = job.processes[VICTIMS[who]]
    victim.signal(signal.SIGSTOP)
    others = [process for process in job.processes if process is not victim]
    assert_all_name(job, others, rf"lost {node_of(lab, VICTIMS[who])}: silent for {PATIENCE}")
    victim.signal(signal.SIGCONT)
    assert_all_name(job, [victim], f"silent for {PATIENCE}|: connection closed")
    said = [line for line in victim.output().splitlines() if "silent for" in line]
    assert all(re.search(node_of(lab, VICTIMS[who]), line) for line in said), said


def test_a_job_that_stops_as_a_whole_for_too_long_costs_time_only(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path
) -> None:
    """As when the machine of all its nodes is suspended: who did not run judges nobody."""
    job = make_job(servers=2, env=STRICT, lab=lab)
    start_and_make_five_steps(job, tmp_path, 30)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in job.processes:
            process.signal(number)
        time.sleep(LONG_S)
    assert_every_step_counts_once(job)


@pytest.mark.parametrize("who", VICTIMS)
def test_a_host_with_a_dead_link_is_named_and_names_its_lost_peers(
    make_job: MakeJob, lab: Lab, tmp_path: pathlib.Path, who: str
) -> None:
    job = make_job(servers=2, env=STRICT, lab=lab)
    start_and_make_five_steps(job, tmp_path, 100_000)
    host = VICTIMS[who]
    victim = job.processes[host]
    others = [process for process in job.processes if process is not victim]
    lab.link(host, "down")
    try:
        assert_all_name(job, others, rf"lost {node_of(lab, VICTIMS[who])}: silent for {PATIENCE}")
        assert_all_name(job, [victim], rf"lost .* \(10\.201\.0\.\d:\d+\): silent for {PATIENCE}")
    finally:
        lab.link(host, "up")


@pytest.mark.parametrize("who", ["worker", "server"])
def test_a_node_of_mxnets_own_that_loses_messages_under_way_is_named(
    make_job: MakeJob, lab: Lab, who: str
) -> None:
    """Its messages travel once, so the job stands until a deadline of ours ends it."""
    env = {"BYTESCHEDULER_STRAGGLER_TIMEOUT": "4s"}
    stock_servers = 1 if who == "server" else 0
    job = make_job(servers=2, stock_servers=stock_servers, env=env, lab=lab)
    script = {
        "worker": ("stock/stock_worker.py", "dist_sync", "", "train_for_long"),
        "server": ("steps/faulty_worker.py", "dist_sync", "100000", "0"),
    }[who]
    for _ in WORKERS:
        job.start_worker(*script, env={"BYTESCHEDULER_BACKEND": "kvstore"})
    for worker in job.workers:
        worker.wait_for_line("training" if who == "worker" else "step 5 ")
    host = SERVERS[0] if who == "server" else WORKERS[1]
    # It waits for this one when its link goes down, so what is lost is what it waits for.
    job.workers[0].signal(signal.SIGSTOP)
    time.sleep(0.5)
    lab.link(host, "down")
    job.workers[0].signal(signal.SIGCONT)
    try:
        lab.reset(host)
    except NoLab as error:
        pytest.skip(str(error))
    ends = ends_of(job, job.processes)
    assert all(process.wait() != 0 for process in job.processes), job.all_output()
    # Of two hosts the later one has rank 0.
    if who == "worker":
        why = "after 4 s still waiting for worker 0 to push it (BYTESCHEDULER_STRAGGLER_TIMEOUT)"
        assert all(why in process.output() for process in job.processes[: -len(WORKERS)])
    else:
        first = next(process for process, _ in ends if process in job.workers)
        why = r"to server 1: after 4 s still waiting for the push of another worker, or for a stock"
        assert re.search(why, first.output()), job.all_output()
    assert "wrong sum" not in job.all_output()
    assert ", want " not in job.all_output()


def test_stock_workers_that_lose_all_pushes_do_not_wait_for_ever(
    make_job: MakeJob, lab: Lab
) -> None:
    """No round is open, so the servers have nothing to miss but the workers themselves."""
    job = make_job(servers=2, env={"BYTESCHEDULER_STRAGGLER_TIMEOUT": "4s"}, lab=lab)
    for _ in WORKERS:
        job.start_worker("stock/stock_worker.py", "dist_sync", "", "train_at_a_word")
    for worker in job.workers:
        worker.wait_for_line("waiting")
    first, second = WORKERS
    with lab.unheard(first, SERVERS), lab.unheard(second, SERVERS):
        (job.folder / "go").touch()
        deadline = time.monotonic() + SOON_S
        while any(
            lab.num_waiting(host) < len(SERVERS) for host in WORKERS
        ):  # until all have pushed
            assert time.monotonic() < deadline, job.all_output()
        try:
            for host in WORKERS:
                lab.end_connections(host)
        except NoLab as error:
            pytest.skip(str(error))
    silent = "closed, with which messages may be lost, nothing has come for 4 s"
    assert_all_name(job, job.processes, rf"lost worker \d .*: after one of its .* {silent}")
    assert "wrong sum" not in job.all_output()


@pytest.mark.parametrize("when", ["before", "during"])
def test_full_disks_cost_only_the_files_written_there(
    lab: Lab, tmp_path: pathlib.Path, when: str
) -> None:
    """Logs and timelines of every host, and of one server and one worker also stderr."""
    folder = tmp_path / "job"
    folder.mkdir()
    for host in range(HOSTS):
        lab.disk(host, folder, "32k")

    def fill() -> None:
        for host in range(HOSTS):
            subprocess.run(lab.on(host, folder, FILL), check=True)

    def fill_last_page_of_log() -> None:
        for host in range(HOSTS):
            subprocess.run(lab.on(host, folder, [*FILL[:2], FILL_LOG]), check=True)

    env = {**PATIENT, "BYTESCHEDULER_DEBUG": "1", "BYTESCHEDULER_TIMELINE": "timeline.json"}
    if when == "before":
        fill()
    with Job(folder, servers=2, env=env, lab=lab, prefix=STDERR_OF_SOME) as job:
        start(job, tmp_path, 100)
        if when == "during":
            wait_for_step(job, 5)
            fill()
            fill_last_page_of_log()
            print_three_steps_after(job, "full disks")
        assert_every_step_counts_once(job)
        for process in (job.processes[SCHEDULER], job.servers[1], job.workers[1]):
            said = process.output()
            lost = re.findall(
                r"WARNING .*BYTESCHEDULER_(\w+): .*No space left on device; (.*)", said
            )
            wanted = [("DEBUG", "the job goes on, nothing more is written to it")]
            if process is not job.processes[SCHEDULER]:
                wanted.append(("TIMELINE", "training goes on, the timeline ends here"))
                assert re.search(r"BYTESCHEDULER_TIMELINE: .*json lacks \d+ events", said)
            assert sorted(lost) == wanted, job.all_output()


def test_kills_and_other_faults_at_random_one_after_the_other(
    lab: Lab, tmp_path: pathlib.Path
) -> None:
    soak(lab, tmp_path, seconds=4, seed=any_seed(), steps=220)

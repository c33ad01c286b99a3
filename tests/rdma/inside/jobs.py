"""Jobs inside the guest, by name: ``jobs.py CASE [tcp|rdma]``; each prints what it found.

With ``tcp`` the same faults meet plain TCP, which helps to tell whose fault one is.
"""

import ctypes
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, Sequence

from cards import BESIDE, BESIDE_ADDRESS, HOSTS, SUMS, Cards, job_of, sums_of
from job import Job, Process

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 3
ENV = {"tcp": {}, "rdma": {"DMLC_ENABLE_RDMA": "1"}}
# Long enough that a fault meets it in the middle.
LONG, PAUSE_S = 25, 0.2
# Much longer than the guest needs to notice an end, and shorter than what waits for a fault.
SOON_S = 180.0
# To start and to run: MXNet takes a minute to import on a quiet machine, and many on a busy one.
PATIENCE_S = 600.0
HEARTBEAT = {"BYTESCHEDULER_HEARTBEAT_TIMEOUT": "10s"}
# Much shorter than the heartbeat's time-out, and longer than READs wait for an answer.
SHORT_S = 3.0
REPEATS = 20
DIGITS = str(HERE.parents[2] / "example" / "image-classification" / "train_mnist.py")
PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14  # linux/prctl.h, linux/capability.h


def run(job: Job, *worker: str) -> List[str]:
    """Run all workers to a good end, and the job too; return the workers' outputs."""
    for _ in range(2):
        job.start_worker(*worker)
    for process in job.processes:
        assert process.wait(PATIENCE_S) == 0, f"{process.name} failed:\n{job.all_output()}"
    return [worker.output() for worker in job.workers]


class Case:
    """What a case has: a folder of its own, and the carrier of its jobs."""

    def __init__(self, folder: pathlib.Path, carrier: str) -> None:
        self._folder = folder
        self._jobs = 0
        self.carrier = carrier

    def job(self, carrier: str = "", hosts: Sequence[int] = HOSTS, **env: str) -> Job:
        """Return a job whose processes have `env` besides what the carrier needs."""
        self._jobs += 1
        more = {**ENV[carrier or self.carrier], **env}
        return job_of(self._folder / str(self._jobs), more, hosts)

    def sums(self, rounds: int = ROUNDS, carrier: str = "", *more: str) -> str:
        """Return the digest of the sums of a job; `more` are arguments of its workers."""
        with self.job(carrier) as job:
            return sums_of(run(job, SUMS, str(rounds), *more))


def sums(case: Case) -> None:
    """Sum; the bytes leave through the cards."""
    before, began = Cards.sent(), time.monotonic()
    found = case.sums()
    print(
        f"{case.carrier} {found}, {Cards.sent() - before} bytes, {time.monotonic() - began:.1f} s"
    )


def same(case: Case) -> None:
    """Sum over TCP and over the carrier: the bits are equal, and the devices have carried them."""
    plain, before = case.sums(carrier="tcp"), Cards.received()
    assert case.sums() == plain
    print(f"equal; the devices received {Cards.received() - before} packets")


def begin(job: Job) -> None:
    """Start the workers, and return once they have done some steps."""
    for _ in range(2):
        job.start_worker(SUMS, str(LONG), str(PAUSE_S))
    for worker in job.workers:
        worker.wait_for_line("step 3 done", PATIENCE_S)


def begun(case: Case, job: Job) -> "List[Process]":
    """Begin, and return all processes; the carrier has carried the steps."""
    before = Cards.received()
    begin(job)
    assert (Cards.received() > before) == (case.carrier == "rdma")
    return list(job.processes)


def assert_all_end(job: Job, processes: "List[Process]", pattern: str) -> None:
    """Wait for failures that say `pattern`."""
    began = time.monotonic()
    for process in processes:
        assert process.wait(SOON_S) != 0, job.all_output()
        assert re.search(pattern, process.output()), job.all_output()
    print(f"all ended after {time.monotonic() - began:.1f} s: {pattern}")


def kill(case: Case) -> None:
    """Kill each role in the middle; all others end and name it."""
    names = {"scheduler": "the scheduler node", "server": r"server \d", "worker": r"worker \d"}
    for role, name in names.items():
        with case.job() as job:
            processes = begun(case, job)
            victim = next(process for process in processes if process.name.startswith(role))
            victim.kill()
            processes.remove(victim)
            assert_all_end(job, processes, rf"lost {name} \([^)]*\): connection closed")


def pause(case: Case) -> None:
    """Stop each role for a while: the job goes on.  One that stops for too long is named."""
    with case.job(**HEARTBEAT) as job:
        for process in (begun(case, job)[0], job.servers[0], job.workers[0]):
            process.signal(signal.SIGSTOP)
            time.sleep(SHORT_S)
            process.signal(signal.SIGCONT)
        finish(case, job)
    for name in ("server", "worker"):
        with case.job(**HEARTBEAT) as job:
            processes = begun(case, job)
            victim = next(process for process in processes if process.name.startswith(name))
            victim.signal(signal.SIGSTOP)
            processes.remove(victim)
            assert_all_end(job, processes, rf"lost {name} \d \([^)]*\): silent for 10")


def finish(case: Case, job: Job) -> None:
    """Let the job end well, with the sums of one that nothing has disturbed."""
    for process in job.processes:
        assert process.wait(SOON_S) == 0, job.all_output()
    assert sums_of([worker.output() for worker in job.workers]) == case.sums(LONG, "tcp")
    print("every sum is right")


def blink(case: Case) -> None:
    """Pull the servers' cable for half a second; the job goes on, and by RDMA again."""
    with case.job(**HEARTBEAT) as job:
        begun(case, job)
        Cards.link(1, "down")
        time.sleep(0.5)
        Cards.link(1, "up")
        before = Cards.received()
        finish(case, job)
    assert case.carrier == "tcp" or Cards.received() > before


def cut(case: Case) -> None:
    """Pull the servers' cable for ever; all end and name a server."""
    with case.job(**HEARTBEAT) as job:
        processes = begun(case, job)
        Cards.link(1, "down")
        assert_all_end(job, processes, r"lost (server \d|worker \d|the scheduler node)")


def loss(case: Case) -> None:
    """Lose one packet of a hundred."""
    Cards.lose(1)
    with case.job() as job:
        begun(case, job)
        finish(case, job)
    assert Cards.lost() > 0
    print(f"{Cards.lost()} packets were lost")


def fork(case: Case) -> None:
    """Fork each worker while its gradients travel; the child reads them."""
    plain = case.sums(carrier="tcp")
    before = Cards.received()
    assert case.sums(ROUNDS, "", "0", "fork") == plain
    print(f"equal; the devices received {Cards.received() - before} packets")


def without_rdma(case: Case, why: str, count: int, hosts: Sequence[int] = HOSTS) -> None:
    """Let `auto` go on over TCP, and `1` be refused.

    `why` is what the first `count` of the servers and workers say, which cannot use RDMA.
    """
    with case.job(hosts=hosts, DMLC_ENABLE_RDMA="auto") as job:
        said = run(job, SUMS, str(ROUNDS))
        assert sums_of(said) == case.sums(carrier="tcp")
        for process in [*job.servers, *job.workers][:count]:
            assert re.search(why, process.output()), job.all_output()
    with case.job(hosts=hosts) as job:
        for server in job.servers:
            assert server.wait(SOON_S) != 0, job.all_output()
            assert re.search(why, server.output()), job.all_output()
    print("auto goes on, 1 is refused")


def beside(case: Case) -> None:
    """Put the servers at an address that no device has."""
    Cards.add_beside()
    why = rf"no RDMA device has the address {BESIDE_ADDRESS} \(rxe0 has "
    without_rdma(case, why, 2, BESIDE)


def memlock(case: Case) -> None:
    """Allow 64 KiB of locked memory."""
    # Root has the right to lock more, but not what it starts once this right is gone for them.
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) == 0
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
    little = r"KiB of locked memory for its connections alone, and the limit of locked memory is 64"
    without_rdma(case, little, 4)


def digits(case: Case) -> None:
    """Train a classifier of digits with MXNet over TCP and over the carrier: equal weights."""
    said = []
    for carrier in ("tcp", case.carrier):
        with case.job(carrier, PYTHONPATH="") as job:  # nothing that hides modules from MXNet
            outputs = run(job, DIGITS, "--network", "mlp", "--num-epochs", "1")
        found = {line for output in outputs for line in re.findall(r"weights .*", output)}
        assert len(found) == 1, outputs
        said.append(found.pop())
    assert said[0] == said[1], said
    print(f"equal: {said[0]}; the devices received {Cards.received()} packets")


def used() -> str:
    """Return what the devices hold now, in the words of the system."""
    return subprocess.run(["rdma", "resource"], check=True, stdout=subprocess.PIPE).stdout.decode()


def many(case: Case) -> None:
    """Run jobs one after the other; nothing is left of them."""
    before, digests = used(), set()
    for _ in range(REPEATS):
        with case.job() as job:
            outputs = run(job, SUMS, str(ROUNDS))
        digests.add(sums_of(outputs))
        for output in outputs:
            pinned = re.search(r"^pinned (\d+) KiB, and (\d+) KiB once closed", output, re.M)
            assert pinned is not None
            assert (int(pinned.group(1)) > 0) == (case.carrier == "rdma"), output
            assert int(pinned.group(2)) == 0, output
    assert len(digests) == 1, digests
    assert used() == before, f"{before}\n{used()}"
    print(f"{REPEATS} jobs, and nothing is left of: {before.strip()}")


CASES: Dict[str, Callable[[Case], None]] = {
    function.__name__: function
    for function in (sums, same, kill, pause, blink, cut, loss, fork, beside, memlock, digits, many)
}


def main(name: str, carrier: str = "rdma") -> None:
    """Run it in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        CASES[name](Case(pathlib.Path(folder), carrier))


if __name__ == "__main__":
    main(*sys.argv[1:])

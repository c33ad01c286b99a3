"""Jobs of hosts of their own, whose processes are killed at random; ``--soak S`` for so long.

Half of the time workers of dist_async (counting_worker.py) are killed, one or all at once, while
they train or on their way to the job, and others take their places; servers and scheduler node live
through it.  In the other half any process of a synchronous job (restarted_worker.py) is, or two
are, which ends the job; it begins again at once on the same ports, from its checkpoint.  In between
processes stop, links of hosts go down or become slow.

Everything is checked that survivors say and sum, and that nobody grows.  The seed is printed;
``--seed N`` chooses alike, as long as the jobs keep time.  By hand, as root, for half an hour:

    python tests/e2e/_support/kills.py --soak 1800

With ``--one-host`` it needs no root: workers that are replaced, and processes that stop, on one
host, where nodes share memory.
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import pathlib
import random
import re
import signal
import statistics
import tempfile
import time
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from host_job import (
    CUT,
    HOSTS,
    PORTS,
    SCHEDULER,
    SOON_S,
    WORKERS,
    assert_all_name,
    assert_every_step_counts_once,
    last_words,
    node_of,
    start,
    step_of,
    wait_for_step,
)
from job import Job, Process
from lab import Lab

# Of a process after its first steps: more is a leak.
MOST_GROWTH = 4 << 20
SETTLED = 20  # pushes or steps
STEPS = 400  # of a training; the sum of more would be no exact float32
LEFT = 80  # more than in the second after which a loss is noticed
PATIENT = {**CUT, "BYTESCHEDULER_HEARTBEAT_TIMEOUT": "120s"}
REJOIN = {**PATIENT, "BYTESCHEDULER_REJOIN_TIMEOUT": "120s"}
# The least that goes through shared memory; and who it is, which nobody says on loopback.
SHARED = {"BYTESCHEDULER_PARTITION": "16KiB", "PS_VERBOSE": "1"}


class Memory:
    """How much each process has grown since it was first looked at."""

    def __init__(self) -> None:
        self._first: Dict[Process, int] = {}
        self._most: Dict[str, int] = {}  # by role

    def look(self, processes: "List[Process]") -> None:
        for process in processes:
            now = (process.kib("RssAnon") + process.kib("RssShmem")) * 1024
            growth = now - self._first.setdefault(process, now)
            role = process.name.split()[0]
            self._most[role] = max(growth, self._most.get(role, 0))

    def check(self) -> None:
        said = (f"{role} {growth / 2**20:+.1f} MiB" for role, growth in self._most.items())
        print("  memory at most:", ", ".join(said))
        assert max(self._most.values()) <= MOST_GROWTH


class Chance:
    """What happens next, and to whom; without a lab links stay as they are."""

    def __init__(self, lab: Optional[Lab], seed: int) -> None:
        self._lab = lab
        self.random = random.Random(seed)
        self.faults = 0

    def some(self, processes: "List[Process]") -> "List[Process]":
        """Return one of them, or now and then two."""
        return self.random.sample(processes, self.random.choice([1, 1, 1, 2]))

    @contextlib.contextmanager
    def harm(self, processes: "List[Process]") -> Iterator[None]:
        """Let one of them, or the link of a host, suffer for a while, and the caller go on."""
        self.faults += 1
        victim, host = self.random.choice(processes), self.random.randrange(HOSTS)
        faults: List[Tuple[Callable[[], None], Callable[[], None]]] = [
            (lambda: victim.signal(signal.SIGSTOP), lambda: victim.signal(signal.SIGCONT))
        ]
        lab = self._lab
        if lab is not None:
            faults += [
                (lambda: lab.link(host, "down"), lambda: lab.link(host, "up")),
                (lambda: lab.rate(host, "2mbit"), lambda: lab.rate(host, "1gbit")),
            ]
        harm, mend = self.random.choice(faults)
        harm()
        try:
            self.sleep(0, 0.5)
            yield
            self.sleep(0, 1)
        finally:
            mend()

    def sleep(self, least_s: float, most_s: float) -> None:
        time.sleep(self.random.uniform(least_s, most_s))


def wait_until(what: "Callable[[], bool]", job: Job) -> None:
    end = time.monotonic() + SOON_S
    while not what():
        assert time.monotonic() < end, last_words(job)
        time.sleep(0.02)  # files tell nobody


def told(seconds: List[float]) -> str:
    return f"{statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s at most"


# -- workers that are replaced ---------------------------------------------------------------------


def name_of(worker: Process) -> str:
    """Return its address as messages about it have it, once it "begins"."""
    found = re.search(r"(?:worker: listening on|registering worker) (\S+)", worker.output())
    assert found is not None, worker.output()
    return f"({found.group(1)})"


def lost_in(said: str) -> List[str]:
    return re.findall(r"lost worker \d (\(\S+?\))", said)


def numbers(worker: Process) -> "Tuple[int, int]":
    """Return how many pushes it has begun, and how many it has seen in the weights."""
    said = worker.output()
    pushes, counted = (re.findall(rf"^{word} (\d+)$", said, re.M) for word in ("pushes", "counted"))
    return int(pushes[-1]) if pushes else 0, int(counted[-1]) if counted else 0


def has_counted(worker: Process, pushes: int) -> bool:
    return numbers(worker)[1] > pushes


class Replaced:
    """A dist_async job whose workers are killed and replaced."""

    def __init__(self, job: Job, chance: Chance) -> None:
        self._job = job
        self._chance = chance
        self._memory = Memory()
        self._victims: List[Process] = []
        self._to_be_named: Set[str] = set()  # those who had a place
        self._named_s: List[float] = []
        for _ in WORKERS:
            self._start_one()
        self._wait_for_all()

    def kill_some(self) -> None:
        """Let others take the places of a worker or all, and harm somebody."""
        victims = self._chance.some(self._living())
        there = [victim for victim in victims if "begins" in victim.output()]
        self._victims += victims
        harm = self._chance.harm(self._running())
        said_before = len(self._said())
        with harm if self._chance.random.random() < 0.3 else contextlib.nullcontext():
            began = time.monotonic()
            for victim in victims:
                victim.kill()
        names = {name_of(victim) for victim in there}
        self._assert_the_others_go_on()
        wait_until(lambda: names <= set(lost_in(self._said()[said_before:])), self._job)
        self._named_s += [time.monotonic() - began for _ in names]
        self._to_be_named |= names
        for _ in victims:
            self._start_one()
        if self._chance.random.random() < 0.7:
            self._wait_for_all()
            with self._chance.harm(self._running()):
                pass
        else:  # the next may be killed on its way
            self._chance.sleep(0, 2)
        self._look()

    def end_well(self) -> None:
        self._wait_for_all()
        for worker in self._living():
            wait_until(functools.partial(has_counted, worker, SETTLED), self._job)
        self._look()
        living = self._living()
        (self._job.folder / "stop").touch()
        for process in self._job.processes:
            assert process in self._victims or process.wait() == 0, last_words(self._job)
        for worker in living:
            self._check_columns(worker.output().split("in the end ")[1])
        self._check_names()
        pushes = sum(numbers(worker)[1] for worker in self._job.workers)
        print(f"dist_async: {len(self._victims)} workers killed and replaced, {pushes} pushes")
        print("  each counts once; named after", told(self._named_s))
        self._memory.check()

    def _check_columns(self, text: str) -> None:
        columns: List[List[int]] = json.loads(text.splitlines()[0])
        for life, worker in enumerate(self._job.workers):
            begun, counted = numbers(worker)
            least = counted if worker in self._victims else begun
            right = all(least <= count <= begun for count in columns[life])
            assert right, f"life {life}: {columns[life]}, want {least} to {begun}"
        assert not any(map(any, columns[len(self._job.workers) :])), "pushes of nobody"

    def _check_names(self) -> None:
        """Each is named as often as its address had a place, but for those who live."""
        living = {name_of(worker) for worker in self._living()}
        had_places = re.findall(r"worker \d (\(\S+?\)) (?:attached|takes the)", self._said())
        wanted = collections.Counter(had_places) - collections.Counter(living)
        lost = collections.Counter(lost_in(self._said()))
        wrong = {name for name in self._to_be_named | living if lost[name] != wanted[name]}
        assert not wrong, f"{wrong}\n{last_words(self._job)}"

    def _said(self) -> str:
        return self._job.processes[SCHEDULER].output()

    def _start_one(self) -> None:
        life = str(len(self._job.workers))
        self._job.start_worker("steps/counting_worker.py", life, str(self._job.folder))

    def _wait_for_all(self) -> None:
        for worker in self._living():
            worker.wait_for_line("begins")

    def _assert_the_others_go_on(self) -> None:
        for worker in self._living():
            begun, _ = numbers(worker)
            if begun:
                wait_until(functools.partial(has_counted, worker, begun + 2), self._job)

    def _look(self) -> None:
        for process in self._running():
            assert process.running(), last_words(self._job)
            if process not in self._job.workers or has_counted(process, SETTLED):
                self._memory.look([process])

    def _running(self) -> "List[Process]":
        return [process for process in self._job.processes if process not in self._victims]

    def _living(self) -> "List[Process]":
        return [worker for worker in self._job.workers if worker not in self._victims]


def replace_workers(
    lab: Optional[Lab], folder: pathlib.Path, chance: Chance, seconds: float
) -> None:
    with Job(folder, servers=2, env={**REJOIN, **({} if lab else SHARED)}, lab=lab) as job:
        replaced = Replaced(job, chance)
        for process in job.workers:
            assert (process.shared_memories() > 0) == (lab is None)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            replaced.kill_some()
        replaced.end_well()


# -- jobs that begin again -------------------------------------------------------------------------


class BegunAgain:
    """A training whose job ends again and again, and begins again from the checkpoint."""

    def __init__(self, lab: Lab, folder: pathlib.Path, chance: Chance, steps: int) -> None:
        self._lab = lab
        self._folder = folder
        self._chance = chance
        self._steps = steps
        self._memory = Memory()
        self._trainings = 0
        self._checkpoint = folder / "checkpoint"
        self._secret = folder / "secret"
        self._secret.write_text("a secret of all nodes of this job")
        self._secret.chmod(0o600)
        self.ended_s: List[float] = []

    def one_job(self, *, kills: bool) -> None:
        """Let it begin; unless it is nearly done, or not to be killed, kill it before its end."""
        secret = {"BYTESCHEDULER_SECRET_FILE": str(self._secret)}
        env = {**PATIENT, **self._chance.random.choice([{}, secret])}
        done = int(self._checkpoint.read_text().split()[0]) if self._checkpoint.exists() else 0
        with Job(self._folder, servers=2, env=env, lab=self._lab, ports=PORTS) as job:
            start(job, self._folder, self._steps)
            wait_for_step(job, done + SETTLED)
            for worker in job.workers:
                assert f" after {done} steps" in worker.output(), last_words(job)
            self._memory.look(job.processes)
            if kills and self._harm(job):
                self._kill_some(job)
            else:
                assert_every_step_counts_once(job)
                self._trainings += 1
                self._checkpoint.unlink()

    def end_well(self) -> None:
        self.one_job(kills=False)
        print(
            f"synchronous: {len(self.ended_s)} ends by kills, {self._trainings} trainings of "
            f"{self._steps} steps"
        )
        print("  each counts once; the last survivor ended after", told(self.ended_s))
        self._memory.check()

    def _harm(self, job: Job) -> bool:
        """Return whether it has still so much to do that it will not have ended before a loss."""
        for _ in range(self._chance.random.choice([0, 1, 2])):
            if not self._has_much_to_do(job):
                return False
            with self._chance.harm(job.processes):
                pass
            wait_for_step(job, min(step_of(job) + 2, self._steps))  # it has got over it
        self._chance.sleep(0, 1)
        return self._has_much_to_do(job)

    def _has_much_to_do(self, job: Job) -> bool:
        return step_of(job) <= self._steps - LEFT

    def _kill_some(self, job: Job) -> None:
        self._memory.look(job.processes)
        victims = self._chance.some(job.processes)
        for victim in victims:
            victim.kill()
        names = [node_of(self._lab, job.processes.index(victim)) for victim in victims]
        others = [process for process in job.processes if process not in victims]
        pattern = rf"lost ({'|'.join(names)}): connection closed"
        self.ended_s.append(assert_all_name(job, others, pattern))


def begin_again(lab: Lab, folder: pathlib.Path, chance: Chance, seconds: float, steps: int) -> None:
    end = time.monotonic() + seconds
    training = BegunAgain(lab, folder, chance, steps)
    while time.monotonic() < end or not training.ended_s:
        training.one_job(kills=True)
    training.end_well()


def any_seed() -> int:
    return int.from_bytes(os.urandom(3), "big")


def soak(lab: Lab, folder: pathlib.Path, seconds: float, seed: int, steps: int = STEPS) -> None:
    print(f"seed {seed}", flush=True)
    chance = Chance(lab, seed)
    for name in ("replaced", "again"):
        (folder / name).mkdir()
    replace_workers(lab, folder / "replaced", chance, seconds / 2)
    begin_again(lab, folder / "again", chance, seconds / 2, steps)
    print(f"{chance.faults} other faults in between: all sums right")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--soak", type=float, default=60)
    parser.add_argument("--seed", type=int, default=any_seed())
    parser.add_argument("--one-host", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.one_host:
            print(f"seed {args.seed}", flush=True)
            replace_workers(None, pathlib.Path(folder), Chance(None, args.seed), args.soak)
            return
        with Lab(HOSTS) as lab:
            soak(lab, pathlib.Path(folder), args.soak, args.seed)


if __name__ == "__main__":
    main()

"""The processes of a job on this host, with the CPU time and the memory they take.

A worker of a benchmark prints ``BEGIN NAME``, waits for a line, measures, prints ``END NAME
seconds...`` and waits for a line again; in between every process of the job is looked at. Before
that END it may print ``ASIDE seconds``: processor time of its own that does not count.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from bytescheduler._launch.launcher import LOOPBACK, Launcher, Place
from bytescheduler._process.child import SPEAKS, Child, Streams

PATIENCE_S = 300.0
# How the nodes of each kind of job are started.
NODES = {
    "stock": [sys.executable, "-c", "import mxnet"],
    "ours": [sys.executable, "-m", "bytescheduler.server"],
}
# How the nodes of an arm are started, and the settings of its worker.
ARMS: Dict[str, Tuple[str, Dict[str, str]]] = {
    "stock": ("stock", {}),
    "ours": ("ours", {"BYTESCHEDULER_BACKEND": "native"}),
    "ours-sockets": (  # without shared memory
        "ours",
        {"BYTESCHEDULER_BACKEND": "native", "BYTESCHEDULER_SHARED_MEMORY": "0"},
    ),
    "kvstore": ("stock", {"BYTESCHEDULER_BACKEND": "kvstore"}),  # ours on stock servers
}


# The place of the scheduler node and the workers, and that of the servers.
Places = Tuple[Place, Place]
HERE_ALL: Places = (LOOPBACK, LOOPBACK)
_TALKS = Streams(stdin=subprocess.PIPE, stdout=subprocess.PIPE)

# Is told BEGIN or END, and the processes: the scheduler node, the servers, the worker.
Watch = Callable[[str, List[int]], None]


def _nobody_watches(_word: str, _pids: List[int]) -> None:
    pass


class Measured(NamedTuple):
    """A worker's report, and its cost."""

    name: str
    seconds: List[float]
    wall_s: float
    cpu_s: float  # all processes of the job, without the time that the worker set aside


def settings() -> Dict[str, str]:
    """Return the environment that all processes of a job share."""
    return {
        **os.environ,
        "BYTESCHEDULER_LOG_LEVEL": "warning",
        "BYTESCHEDULER_TUNING": "off",  # partition and credit must not change
        "OMP_NUM_THREADS": "1",
    }


def cpu_seconds(pids: List[int]) -> float:
    """Return the CPU time of all threads of the processes, also of those that have ended."""
    # clock_getcpuclockid(3): the complement of the process, and 2 for its time on any processor.
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def worker_sets_aside(cpu_s: float) -> None:
    """Say how much CPU time of this process, since BEGIN, does not belong to the measurement."""
    print("ASIDE", f"{cpu_s:.9f}", flush=True)


def worker_waits(word: str, name: str, seconds: Optional[List[float]] = None) -> None:
    """Say what a worker written in Python has to say, and wait for the reader."""
    print(word, name, *(f"{value:.9f}" for value in seconds or []), flush=True)
    if not sys.stdin.readline():
        raise SystemExit("the program that reads the results has ended")


def _listen(worker: Child, pids: List[int], watch: Watch) -> List[Measured]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    measured = []
    begin_s = cpu_s = aside_s = 0.0
    for line in worker.stdout:
        words = line.split()
        if not words or words[0] not in ("BEGIN", "ASIDE", "END"):
            continue
        if words[0] == "ASIDE":
            aside_s = float(words[1])
            continue
        if words[0] == "BEGIN":
            aside_s, cpu_s, begin_s = 0.0, cpu_seconds(pids), time.perf_counter()
        else:
            wall_s, spent_s = time.perf_counter() - begin_s, cpu_seconds(pids) - cpu_s
            seconds = [float(word) for word in words[2:]]
            measured.append(Measured(words[1], seconds, wall_s, spent_s - aside_s))
        watch(words[0], pids)
        worker.stdin.write("\n")
        worker.stdin.flush()
    return measured


@contextlib.contextmanager
def patience(what: Any, timeout_s: float, kill: Callable[[], None]) -> "Iterator[None]":  # noqa: ANN401
    """Call `kill`, on a thread of its own, if it takes longer.

    Raises
    ------
    subprocess.TimeoutExpired
        It did; it names `what`, and stands for the errors that the killed ones cause.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        kill()

    timer = threading.Timer(timeout_s, end)
    timer.start()
    try:
        yield
    except (OSError, SystemExit):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
        timer.join()
    if late.is_set():
        raise subprocess.TimeoutExpired(what, timeout_s)


def _next_words(worker: Child) -> List[str]:
    """Return the words of a worker's next BEGIN or END; none: it has ended."""
    assert worker.stdout is not None
    for line in iter(worker.stdout.readline, ""):
        words = line.split()
        if words and words[0] in ("BEGIN", "END"):
            return words
    return []


class Job(NamedTuple):
    """The processes of a job under way."""

    launcher: Launcher
    scheduler: Child
    servers: List[Child]
    workers: List[Child]

    def heard(self, what: str, timeout_s: float = PATIENCE_S) -> List[List[str]]:
        """Return the words of each worker's next BEGIN or END; the workers wait then.

        Parameters
        ----------
        what
            The first two of them, such as "BEGIN sums".
        timeout_s
            How long they may take; then all processes are killed.

        Raises
        ------
        SystemExit
            A worker ended or said something else, or they took longer.
        """
        try:
            with patience(self.workers[0].command, timeout_s, self.kill):
                lines = [_next_words(worker) for worker in self.workers]
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"not every worker said {what!r} within {timeout_s:g} s; the job was killed"
            ) from None
        for worker, words in zip(self.workers, lines):
            if words[:2] != what.split():
                said = f"said {' '.join(words[:2])!r}" if words else "ended"
                raise SystemExit(f"{worker.command!r} {said}; {what!r} was waited for")
        return lines

    def turn(self, name: str, timeout_s: float = PATIENCE_S) -> List[float]:
        """Let the workers begin and end the part `name`; return the seconds that they measured.

        Parameters
        ----------
        name
            The word after BEGIN and END.
        timeout_s
            See `heard`, for each of the two.

        Raises
        ------
        SystemExit
            See `heard`.
        """
        self.heard(f"BEGIN {name}", timeout_s)
        self.go_on()
        lines = self.heard(f"END {name}", timeout_s)
        self.go_on()
        return [float(word) for words in lines for word in words[2:]]

    def kill(self) -> None:
        """End all of them at once."""
        self.launcher.kill_all()

    def go_on(self) -> None:
        """Let the workers go on."""
        for worker in self.workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()

    def ended(self) -> None:
        """Wait for the end of all of them, which has to be a good one."""
        failed = self.launcher.await_good_end(PATIENCE_S)
        if failed is not None:
            raise SystemExit(f"{failed.command!r} failed with exit code {failed.code}")


@contextlib.contextmanager
def job(
    node: List[str],
    worker: List[str],
    env: Dict[str, str],
    workers: int = 1,
    servers: int = 1,
    places: Places = HERE_ALL,
) -> Iterator[Job]:
    """Start all processes of a job at once; what still runs at the end is killed.

    Parameters
    ----------
    node
        The command of the scheduler node and of servers.
    worker
        The command of workers.
    env
        Settings of all of them.
    workers, servers
        How many there are.
    places
        Where they run.
    """
    near, far = places
    with Launcher(workers, servers, {**settings(), **env}, root=near) as launcher:
        launcher.reserve_port()

        def start(role: str, command: List[str], streams: Streams = SPEAKS) -> Child:
            at = far if role == "server" else near
            return launcher.start(role, command, place=at, streams=streams)

        yield Job(
            launcher,
            start("scheduler", node),
            [start("server", node) for _ in range(servers)],
            [start("worker", worker, _TALKS) for _ in range(workers)],
        )


@contextlib.contextmanager
def direct_job(worker: List[str], env: Dict[str, str], workers: int) -> Iterator[Job]:
    """Do as `job` for one without servers of its own: each worker's process hosts a server."""
    with Launcher(workers, workers, {**settings(), **env}, root=LOOPBACK) as launcher:
        launcher.reserve_port()
        no_role = dict.fromkeys(("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"), "")
        place = {"WORLD_SIZE": str(workers), "MASTER_ADDR": LOOPBACK.address, **no_role}
        hosts = [
            launcher.start("worker", worker, env={**place, "RANK": str(rank)}, streams=_TALKS)
            for rank in range(workers)
        ]
        yield Job(launcher, hosts[0], hosts, hosts)


def run(
    node: List[str],
    worker: List[str],
    env: Dict[str, str],
    servers: int = 1,
    timeout_s: float = PATIENCE_S,
    watch: Watch = _nobody_watches,
    places: Places = HERE_ALL,
) -> List[Measured]:
    """Run a job of one worker to its end; parameters as of `job`, and more.

    Parameters
    ----------
    timeout_s
        How long the worker may take.
    watch
        Looks at the processes while the worker waits.

    Raises
    ------
    SystemExit
        A process failed.
    subprocess.TimeoutExpired
        The worker took longer, or a node did not end with it.
    """
    with job(node, worker, env, servers=servers, places=places) as running:
        (process,) = running.workers
        pids = [each.pid for each in [running.scheduler, *running.servers, process]]
        measured: List[Measured] = []
        # One that has ended by itself does not listen either: how, its exit code tells.
        with patience(process.command, timeout_s, running.kill), contextlib.suppress(
            BrokenPipeError
        ):
            measured = _listen(process, pids, watch)
        running.ended()
        return measured


def run_arm(
    arm: str,
    worker: List[str],
    more: Optional[Dict[str, str]] = None,
    **how: Any,  # noqa: ANN401
) -> List[Measured]:
    """Run a job of one of `ARMS` to its end, with `more` settings; otherwise as `run`."""
    nodes, env = ARMS[arm]
    return run(NODES[nodes], worker, {**env, **(more or {})}, **how)

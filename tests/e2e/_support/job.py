"""Whole jobs of real processes, for tests, on loopback or in a lab: our roles, or stock MXNet's."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from typing import Dict, List, Optional, Sequence

from ended import Ended
from forked import ForkingLauncher, HostPlace
from lab import Lab

from bytescheduler._launch.launcher import LOOPBACK, Launcher, Place
from bytescheduler._process.child import Child, Streams

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = HERE.parent / "workers"
# For a loaded machine; what must be quick says so itself.
PATIENCE_S = 120.0
OURS = [sys.executable, "-m", "bytescheduler.server"]
# What is read at the start of Python or of a framework: alike, so that one fork server does.
AS_IN_JOBS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONFAULTHANDLER": "1",  # see Process.abort
    "PYTHONPATH": str(HERE / "on_path"),
    "PYTHONUNBUFFERED": "1",
}
OURS_WITH_MXNET = [sys.executable, str(HERE / "forked" / "our_role.py")]
STOCK = [sys.executable, str(HERE / "stock_role.py")]


def place_on(lab: Lab, host: int, folder: pathlib.Path) -> HostPlace:
    """Return the place of processes that run in `folder` on a host of the lab."""
    place = HostPlace(lab.address(host), lab.on(host, folder, []))
    place.namespaces = lab.namespaces(host)
    return place


def without_settings() -> Dict[str, str]:
    """Return the environment of this process, but for settings of jobs."""
    own = ("DMLC_", "BYTESCHEDULER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


class Process:
    """A process of the job; its output goes to a file, so that it never waits for a reader."""

    def __init__(self, child: Child, log: pathlib.Path) -> None:
        self.child = child
        self._log = log

    @classmethod
    def start(
        cls,
        launcher: Launcher,
        role: str,
        command: Sequence[str],
        folder: pathlib.Path,
        *,
        name: str = "",
        place: Place = LOOPBACK,
        env: Optional[Dict[str, str]] = None,
    ) -> "Process":
        """Start it as `Launcher.start` does; its output goes to `folder`."""
        name = name or role
        log = folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as file:
            streams = Streams(stdout=file, stderr=file)
            if role == "scheduler":
                child = launcher.start_scheduler(command, name=name, env=env, streams=streams)
            else:
                child = launcher.start(
                    role, command, name=name, place=place, env=env, streams=streams
                )
        return cls(child, log)

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.child.name

    def output(self) -> str:
        """Return what it wrote so far, to stdout and stderr."""
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        """Return whether it has not ended."""
        return self.child.code is None

    def wait(self, deadline_s: float = PATIENCE_S) -> int:
        """Return the exit code; fail if it runs for longer than `deadline_s`."""
        try:
            return self.child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} still runs after {deadline_s:g} s:\n{self.output()}"
            ) from None

    def abort(self) -> None:
        """End it, and what it started, so that its output shows where each Python thread was."""
        self.child.signal_group(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(10)

    def wait_for_line(self, text: str, deadline_s: float = PATIENCE_S) -> None:
        """Return when its output contains `text`."""
        end = time.monotonic() + deadline_s
        while text not in self.output():
            assert self.running(), f"{self.name} ended without {text!r}:\n{self.output()}"
            assert time.monotonic() < end, f"{self.name} never wrote {text!r}:\n{self.output()}"
            time.sleep(0.02)  # a file tells nobody that it has grown

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.child.pid

    def kib(self, what: str) -> int:
        """Return what the kernel says of its memory: VmRSS, VmHWM, RssAnon, RssShmem."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{what}:\s+(\d+) kB", status, re.M)
        assert found is not None, status
        return int(found.group(1))

    def shared_memories(self) -> int:
        """Return how many mappings and descriptors of our shared memory it has."""
        ours = "/memfd:bytescheduler"
        found = pathlib.Path(f"/proc/{self.pid}/maps").read_text().count(ours)
        for descriptor in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found += os.readlink(descriptor).startswith(ours)
        return found

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.child.signal(number)

    def kill(self) -> None:
        """End it at once, as kill -9 does."""
        self.signal(signal.SIGKILL)
        self.child.wait()


class Job(Ended):
    """One scheduler node and some servers; the test starts the workers.

    Parameters
    ----------
    folder : Path
        For logs, and where all processes run.
    workers, servers : int
        How many of each.
    stock : bool
        MXNet's own roles instead of ours.
    stock_scheduler : bool
        Only the scheduler node is MXNet's own.
    stock_servers : int
        So many of the servers are MXNet's own.
    env : dict, optional
        Variables for every process.
    prefix : list of str, optional
        What stands before the command of servers and workers.
    ports : list of int, optional
        Those of our scheduler node and servers, in this order; without it they take any.
    lab : Lab, optional
        Each of our nodes on a host of its own, in the order scheduler node, servers, workers;
        further workers begin with the first worker's host again.
    hosts : list of int, optional
        The hosts of the lab in that order, if they are not 0, 1, 2 and so on.
    on_host : dict, optional
        More variables for the nodes of a host of the lab.
    forks : bool
        Workers are forked from a process that has imported their framework (forked/); False:
        they are started, for a test of what Python does at its start or its end.
    servers_have_mxnet : bool
        So are our servers, from a process that has imported MXNet: for jobs that bring them
        optimizers, for which a server else imports MXNet itself.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        workers: int = 2,
        servers: int = 1,
        stock: bool = False,
        stock_scheduler: bool = False,
        stock_servers: int = 0,
        env: Optional[Dict[str, str]] = None,
        prefix: Optional[List[str]] = None,
        ports: Optional[List[int]] = None,
        lab: Optional[Lab] = None,
        hosts: Optional[Sequence[int]] = None,
        on_host: Optional[Dict[int, Dict[str, str]]] = None,
        forks: bool = True,
        servers_have_mxnet: bool = False,
    ) -> None:
        self.folder = folder
        self._lab = lab
        self._hosts = hosts or range(1 + servers + workers)
        self._on_host = on_host or {}
        self._ports = ports or [0] * (servers + 1)
        self._prefix = prefix or []
        self._stock = stock
        self._stock_scheduler = stock or stock_scheduler
        self._stock_servers = servers if stock else stock_servers
        self._own_servers = OURS_WITH_MXNET if servers_have_mxnet else OURS
        self._num_workers = workers
        self._num_servers = servers
        common = {
            **without_settings(),
            **AS_IN_JOBS,
            # Partitions that a test counts stay as they are, and its steps are too uneven to tell
            # points apart; test_tuned_job.py has the default.
            "BYTESCHEDULER_TUNING": "off",
            **(env or {}),
        }
        kind = ForkingLauncher if forks else Launcher
        self._launcher = kind(
            workers, servers, common, root=self._place(0), port=self._ports[0], folder=folder
        )
        self.processes: List[Process] = []
        self.workers: List[Process] = []
        self.servers: List[Process] = []

    def __enter__(self) -> "Job":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._launcher)
            self._start_roles()
            self._ends = stack.pop_all()
        return self

    def end(self) -> None:
        self._ends.close()

    @property
    def root_port(self) -> int:
        """Where the scheduler node listens."""
        return self._launcher.port

    def start_worker(
        self, script: str, *arguments: str, env: Optional[Dict[str, str]] = None
    ) -> Process:
        """Start the next worker: `script` of workers/ with `arguments`."""
        name = f"worker {len(self.workers)}"
        more = {} if self._stock else {"BYTESCHEDULER_BACKEND": "native"}
        command = [*self._prefix, sys.executable, str(WORKERS / script), *arguments]
        host = 1 + self._num_servers + len(self.workers) % self._num_workers
        process = self._start("worker", name, command, {**more, **(env or {})}, host)
        self.workers.append(process)
        return process

    def start_scheduler(self, name: str = "scheduler") -> Process:
        """Start ours on the port that it was given; `name` is that of its log."""
        return self._start("scheduler", name, OURS)

    def start_server(
        self, index: int, name: str = "", env: Optional[Dict[str, str]] = None
    ) -> Process:
        """Start this one, again if it was there before; `name` is that of its log then."""
        env = {"DMLC_PORT": str(self._ports[index + 1]), **(env or {})}
        command = STOCK if index < self._stock_servers else [*self._prefix, *self._own_servers]
        process = self._start("server", name or f"server {index}", command, env, 1 + index)
        self.servers.append(process)
        return process

    def run(self, script: str, *arguments: str, env: Optional[Dict[str, str]] = None) -> List[str]:
        """Run all workers to a good end, and the job too; return the workers' outputs."""
        for _ in range(self._num_workers):
            self.start_worker(script, *arguments, env=env)
        self._await_good_ends()
        return [worker.output() for worker in self.workers]

    def run_with(
        self,
        others: "List[Job]",
        script: str,
        kind: str,
        cases: "List[str]",
        env: Optional[Dict[str, str]] = None,
    ) -> List[str]:
        """Run the first of `cases` here and each other in one of `others`, by the same workers.

        The script has children for that (children.py); all jobs must come to a good end.
        """
        jobs = [self, *others]
        where = [f"{each}={job.root_port}" for each, job in zip(cases, jobs)]
        outputs = self.run(script, kind, *where, env=env)
        for job in others:
            job._await_good_ends()
        return outputs

    def run_into(self, text: str, script: str, *arguments: str) -> None:
        """Run one worker into the error that it expects; everybody must tell `text`."""
        worker = self.start_worker(script, *arguments)
        assert worker.wait() != 0
        assert "refused as it should" in worker.output(), worker.output()
        for process in self.processes:
            process.wait()
            assert text in process.output(), f"{process.name}:\n{process.output()}"

    def wait_for_one(self, processes: List[Process], deadline_s: float = PATIENCE_S) -> Process:
        """Return the first of `processes` that ends; fail if none does in `deadline_s`."""
        children = [process.child for process in processes]
        first = self._launcher.await_first(children, time.monotonic() + deadline_s)
        assert first is not None, f"all still run after {deadline_s:g} s:\n{self.all_output()}"
        return processes[children.index(first)]

    def wait_for_text(self, processes: List[Process], text: str) -> Process:
        """Return the first of `processes` whose output contains `text`."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for process in processes:
                if text in process.output():
                    return process
            time.sleep(0.02)  # a file tells nobody that it has grown
        raise AssertionError(f"nobody wrote {text!r}:\n{self.all_output()}")

    def all_output(self) -> str:
        """Return what all processes wrote, for a message."""
        return "".join(f"--- {p.name}\n{p.output()}" for p in self.processes)

    def _await_good_ends(self) -> None:
        """Wait for all processes; abort the others when one fails, and all when one never ends."""
        try:
            failed = self._launcher.await_good_end(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._abort()
            raise AssertionError(
                f"the job still runs after {PATIENCE_S:g} s:\n{self.all_output()}"
            ) from None
        if failed is not None:
            self._abort()
            raise AssertionError(f"{failed.describe()}:\n{self.all_output()}")

    def _abort(self) -> None:
        for late in filter(Process.running, self.processes):
            late.abort()

    # -- roles ---------------------------------------------------------------------------------

    def _place(self, host: int) -> Place:
        if self._lab is None:
            return LOOPBACK
        there = self._hosts[host]
        return place_on(self._lab, there, self.folder)

    def _start(
        self,
        role: str,
        name: str,
        command: Sequence[str],
        env: Optional[Dict[str, str]] = None,
        host: int = 0,
    ) -> Process:
        process = Process.start(
            self._launcher,
            role,
            command,
            self.folder,
            name=name,
            place=self._place(host),
            env={**(env or {}), **self._on_host.get(self._hosts[host], {})},
        )
        self.processes.append(process)
        return process

    def _start_roles(self) -> None:
        if not self.root_port:
            self._launcher.reserve_port()
        if self._stock_scheduler:
            self._start("scheduler", "scheduler", STOCK)
        else:
            self.start_scheduler().wait_for_line("listening on ")
        for index in range(self._num_servers):
            self.start_server(index)

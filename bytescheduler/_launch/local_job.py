"""Runs a whole job on this host: a scheduler node, servers and workers as child processes."""

import math
import os
import subprocess
from typing import Dict, Optional, Sequence

from bytescheduler._launch import leaving, torch_place
from bytescheduler._launch.launcher import LOOPBACK, Launcher, Place
from bytescheduler._launch.ranks import place_of
from bytescheduler._launch.supervisor import Job, Over, Run, supervise
from bytescheduler._native import about_host
from bytescheduler._process import family, limits
from bytescheduler._process.child import Child, Streams
from bytescheduler._process.say import plain
from bytescheduler._process.witness import Witness
from bytescheduler._started import interrupt, ready

__all__ = ["Job", "prefer_native", "run", "usable_cores"]

_CANNOT_RUN = 126  # the code of shells
_MERGED = Streams(subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT)
# The variables that `prefer_native` may set.
_PREFERRED = ("BYTESCHEDULER_BACKEND", "DMLC_PS_VAN_TYPE")
# MXNet quotes it after "Unsupported van type: ", where its own store would wait for ever: no node
# of a job with a secret lets it in.
_NO_VAN = (
    "none in a job with BYTESCHEDULER_SECRET_FILE; import bytescheduler.mxnet before the store is "
    "created, and add kvs = ScheduledKVS(kvs)"
)


def prefer_native(env: Dict[str, str]) -> None:
    """Let a worker use the servers that bslaunch started, unless its settings say otherwise."""
    if env.get("BYTESCHEDULER_BACKEND", "") in ("", "auto"):
        env["BYTESCHEDULER_BACKEND"] = "native"
    if env.get("BYTESCHEDULER_SECRET_FILE", ""):
        env["DMLC_PS_VAN_TYPE"] = _NO_VAN


def run(job: Job) -> int:
    """Run `job` to its end and return the exit code for the shell; only on the main thread.

    The first worker that fails decides the code (128 + n if signal n ended it).  A signal that
    stops the job goes to the workers, and gives 128 + n if they do not end in time; the time-out
    gives 124.  No process of the job is left when this returns.
    """
    return supervise(job, _LocalRun)


def _base_env(job: Job) -> Dict[str, str]:
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if job.quiet:
        env.setdefault("BYTESCHEDULER_LOG_LEVEL", "warning")
    return env


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its control groups."""
    job = {
        "DMLC_ROLE": "scheduler",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": "0",
    }
    quotas = [math.ceil(float(fact.name)) for fact in about_host(job) if fact.what == "quota"]
    return min([len(os.sched_getaffinity(0)), *quotas])


class _LocalRun(Run):
    """A run whose processes are children of this one."""

    def __init__(self, job: Job, witness: Witness) -> None:
        launcher = Launcher(job.num_workers, job.num_servers, _base_env(job), sessions=True)
        super().__init__(job, witness, launcher)
        self._listeners: Dict[Child, ready.Listener] = {}
        self._vouching: Optional[leaving.Vouching] = None

    def _start_all(self) -> None:
        job = self._job
        node_env = {**job.env, "BYTESCHEDULER_GRACE": f"{job.grace:f}"}
        self._start("scheduler", "scheduler", job.node, node_env)
        self._await_port()
        for index in range(job.num_servers):
            place = place_of(index, job.num_servers)
            env = {**node_env, "DMLC_SERVER_ID": str(index)}
            self._start("server", f"server {index}", job.node, env, place)
        variables = {**os.environ, **job.env}
        meeting = torch_place.meeting_place(variables, LOOPBACK.address, self._launcher.free_port)
        worker_env = {**self._worker_env(), **meeting}
        for index in range(job.num_workers):
            place = place_of(index, job.num_workers)
            listener = ready.Listener()
            ranks = torch_place.ranks(index, job.num_workers, index, job.num_workers)
            numbers = {**ranks, "DMLC_WORKER_ID": str(index)}
            env = {**worker_env, **numbers, ready.NAME: listener.name}
            self._start("worker", f"worker {index}", job.command, env, place)
            self._listeners[self._launcher.workers[-1]] = listener
        self._vouching = leaving.Vouching(self._count_silent, self._env_of_worker())

    def _end_all(self) -> None:
        super()._end_all()
        if self._vouching is not None:
            self._vouching.stop()

    def _count_silent(self) -> int:
        """Return how many workers live that have not said anything."""
        return sum(
            worker.code is None and listener.is_silent()
            for worker, listener in list(self._listeners.items())
        )

    def _worker_env(self) -> Dict[str, str]:
        env = {**_base_env(self._job), **self._job.env}
        prefer_native(env)
        worker_env = {
            **self._job.env,
            **{name: env[name] for name in _PREFERRED if name in env},
            interrupt.NAME: "1",
        }
        if "OMP_NUM_THREADS" in env or self._job.num_workers == 1:
            return worker_env
        # No more threads than there are cores.
        threads = max(1, usable_cores() // self._job.num_workers)
        self._remark(f"OMP_NUM_THREADS={threads} for each worker; set it yourself to change it")
        return {**worker_env, "OMP_NUM_THREADS": str(threads)}

    def _start(
        self,
        role: str,
        name: str,
        command: Sequence[str],
        env: Dict[str, str],
        place: Place = LOOPBACK,
    ) -> None:
        try:
            if role == "scheduler":
                child = self._launcher.start_scheduler(command, env=env, streams=_MERGED)
            else:
                child = self._launcher.start(
                    role, command, name=name, place=place, env=env, streams=_MERGED
                )
        except OSError as error:
            self._say(f"cannot run {plain(command[0])}: {limits.reason(error)}")
            raise Over(_CANNOT_RUN) from error
        self._show(child, child.take_output())

    def _leave_for(self, worker: Child) -> None:
        """Leave the job for a worker that ended well, if it skipped that."""
        places = self._listeners[worker].held_places()
        leaving.leave_for(places, self._env_of_worker(), self._say)

    def _tell_code(self, worker: Child, code: int) -> None:
        """Tell the job how a worker ended, if it left without a reason."""
        places = self._listeners[worker].unexplained_places()
        leaving.leave_for(places, self._env_of_worker(), self._say, code)

    def _env_of_worker(self) -> Dict[str, str]:
        return {
            **self._job.env,
            "DMLC_ROLE": "worker",
            "DMLC_NUM_WORKER": str(self._job.num_workers),
            "DMLC_NUM_SERVER": str(self._job.num_servers),
            "DMLC_PS_ROOT_URI": LOOPBACK.address,
            "DMLC_PS_ROOT_PORT": str(self._launcher.port),
        }

    def _waits(self, worker: Child) -> bool:
        return worker in self._listeners and self._listeners[worker].waits()

    def _signal_workers(self, number: int) -> None:
        open_workers = [worker for worker in self._launcher.workers if not worker.is_closed]
        family.pass_on([worker.pid for worker in open_workers], number)

    def _save(self, ended: Sequence[Child], number: int) -> bool:
        return bool(family.savers([worker.pid for worker in ended], number))

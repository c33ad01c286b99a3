"""Runs a whole job on several hosts over ssh: each process by an agent at the other end."""

import contextlib
import dataclasses
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from bytescheduler._launch import agent, torch_place
from bytescheduler._launch.launcher import (
    Exited,
    Failed,
    Launcher,
    Listening,
    Place,
    node_command,
)
from bytescheduler._launch.supervisor import Job, Over, Run, supervise
from bytescheduler._native import version
from bytescheduler._process import limits
from bytescheduler._process.child import Child, Streams
from bytescheduler._process.say import counted, plain
from bytescheduler._process.witness import Witness
from bytescheduler._started.environments import ENVIRONMENTS
from bytescheduler._started.host_names import HostSlots

__all__ = ["SSH", "SshJob", "places_of", "run"]

SSH = "ssh"
# No question can be answered, and a host that is gone is noticed within a minute.
_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),
)
_CHECK_S = 30.0
_GREETING_S = 30.0
_LOOK_S = 0.05
_KILL_S = 3.0  # from SIGKILL for a process until its ssh is ended
# sshd drops connections beyond some ten that have not logged in (MaxStartups).
_MOST_LOGINS = 8
_SSH_FAILED = 255
_CANNOT_RUN = 126
# These describe this host, this login or this process, so they stay here.
_OWN = re.compile(
    r"HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|HOSTNAME|TERM|MAIL|DISPLAY|XAUTHORITY|TMPDIR|SHLVL|_|"
    r"(SSH|XDG|DBUS|BSLAUNCH|TMUX|SLURM|OMPI|PMIX|PMI|HYDI?)_.*|MPI_LOCAL.*|"
    r"DMLC_(NODE_HOST|INTERFACE)"
)
_NUMERIC = re.compile(r"[0-9.]+|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(%\w+)?")


@dataclasses.dataclass(frozen=True)
class SshJob(Job):
    """A job on several hosts.

    Parameters
    ----------
    hosts : sequence of HostSlots
        The scheduler node runs on the first.  Servers and workers go around the list; in each
        turn a host gets one server, or as many workers as it has slots.
    ssh : sequence of str
        The command that reaches a host.
    root : str
        The address of the first host as the other hosts reach it.
    port : int
        Where the scheduler node listens; 0: any free port.
    folder : str
        Where all processes run.
    """

    hosts: Sequence[HostSlots] = ()
    ssh: Sequence[str] = (SSH,)
    root: str = ""
    port: int = 0
    folder: str = dataclasses.field(default_factory=os.getcwd)


def places_of(
    hosts: Sequence[HostSlots], num_workers: int, num_servers: int
) -> Tuple[List[HostSlots], List[HostSlots]]:
    """Return the hosts of the workers and of the servers, by rank."""
    slots = [host for host in hosts for _ in range(host.slots)]
    workers = [slots[rank % len(slots)] for rank in range(num_workers)]
    return workers, [hosts[rank % len(hosts)] for rank in range(num_servers)]


def run(job: SshJob) -> int:
    """Run `job` to its end and return the exit code for the shell; only on the main thread.

    The rules of `local_job.run` hold.  Before it starts anything it looks whether all hosts are
    ready.  An ssh that fails gives 255.
    """
    return supervise(job, lambda _, witness: _SshRun(job, witness))


def _login(job: SshJob, host: HostSlots) -> List[str]:
    """Return the command of an agent on that host."""
    remote = " ".join(shlex.quote(word) for word in [*node_command(), "--agent"])
    return [*job.ssh, *_OPTIONS, host.login, f"exec {remote}"]


def _variables(job: SshJob) -> Dict[str, str]:
    """Return the variables of this process that are passed on, and the job's own."""
    ranks = [row.rank for row in ENVIRONMENTS] + [
        name for row in ENVIRONMENTS for name in row.sizes
    ]
    passed = {
        name: value
        for name, value in os.environ.items()
        if not _OWN.fullmatch(name) and name not in ranks
    }
    if job.quiet:
        passed.setdefault("BYTESCHEDULER_LOG_LEVEL", "warning")
    grace = {"BYTESCHEDULER_GRACE": f"{job.grace:f}"}
    return {**passed, "PYTHONUNBUFFERED": "1", **job.env, **grace}


class _RemoteChild(Child):
    """An ssh, and the process of the job at its other end."""

    login = ""
    host = ""

    def __init__(self, name: str, command: Sequence[str], process: "subprocess.Popen[str]") -> None:
        super().__init__(name, command, process)
        self.greeted = threading.Event()
        self.error = ""  # the reason of an agent that refused
        self.has_ended = False  # the agent has seen the end of the process
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Send a line to the agent."""
        with self._lock, contextlib.suppress(OSError, ValueError):  # it has ended
            assert self.stdin is not None
            self.stdin.write(text)
            self.stdin.flush()

    def signal(self, number: int) -> None:
        """Signal the process at the other end; SIGKILL ends its children too."""
        self.write(f"{int(number)}\n")

    def signal_group(self, number: int) -> None:
        """Signal the process at the other end; SIGKILL ends its children too."""
        if not self.is_closed:
            self.signal(number)

    def cut(self) -> None:
        """End the ssh itself."""
        super().signal_group(signal.SIGKILL)

    def describe(self) -> str:
        """Return how it ended.  Only when it has."""
        if self.error:
            return f"{self.name} on {self.host}: {plain(self.error)}"
        if not self.has_ended:
            return f"{self.name}: the connection to {self.host} ended (exit code {self.code})"
        return f"{super().describe()} on {self.host}"


class _RemoteLauncher(Launcher):
    """A launcher that starts each process at the far end of an ssh of its own."""

    def __init__(self, job: SshJob) -> None:
        root = Place(job.root)
        super().__init__(
            job.num_workers, job.num_servers, _variables(job), root=root, port=job.port
        )
        self._job = job
        self.outputs: Dict[Child, int] = {}  # descriptors of the output of the processes
        self._meeting_port = 0

    def meeting_place(self) -> Dict[str, str]:
        """Return the variables by which PyTorch's processes meet; the scheduler node listens."""
        variables = self._variables("worker")
        return torch_place.meeting_place(variables, self._job.root, lambda: self._meeting_port)

    def start_on(
        self, host: HostSlots, role: str, name: str, env: Mapping[str, str], share: int
    ) -> _RemoteChild:
        """Start a process of the job on that host.

        Raises
        ------
        OSError
            There is no ssh here.
        """
        variables = {**self._variables(role), **env}
        if _NUMERIC.fullmatch(host.address):
            variables["DMLC_NODE_HOST"] = host.address
        job = self._job
        order = agent.Order(
            version=version(),
            folder=job.folder,
            command=list(job.command) if role == "worker" else [],
            env=variables,
            share=share,
            grace=job.grace,
        )
        output, target = os.pipe()
        try:
            child = _RemoteChild.start(
                name,
                _login(job, host),
                os.environ,
                streams=Streams(subprocess.PIPE, subprocess.PIPE, target),
                session=True,
                on_end=lambda ended: self.put(Exited(ended)),
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(target)
        child.login, child.host = host.login, host.address
        self._add(role, child)
        self.outputs[child] = output
        threading.Thread(target=self._listen, args=(child, role), daemon=True).start()
        child.write(order.as_line())
        return child

    def _listen(self, child: _RemoteChild, role: str) -> None:
        """Take the lines of the agent until it ends."""
        assert child.stdout is not None
        listens = False
        for line in child.stdout:
            word, _, text = line.strip().partition(" ")
            if word == agent.HELLO:
                child.greeted.set()
            elif word == agent.ERROR:
                child.error = text
            elif word == agent.EXIT:
                child.has_ended = True
            elif role == "scheduler" and word == agent.MEETING and text.isdigit():
                self._meeting_port = int(text)
            elif role == "scheduler" and word == agent.PORT and text.isdigit():
                listens = True
                self.put(Listening(int(text)))
            elif role == "scheduler" and word == agent.FAILED:
                self.put(Failed(text))
        child.greeted.set()
        if role == "scheduler" and not listens:
            self.put(Listening(0))

    def kill_all(self) -> None:
        """End all at once; an ssh whose other end does not respond is ended after a moment."""
        self._signal(self.children, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_S
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
            if child.code is None and isinstance(child, _RemoteChild):
                child.cut()
        super().kill_all()


class _Checked(NamedTuple):
    """A host was looked at; `fault` is empty if it is ready."""

    number: int  # counts the hosts
    fault: str
    code: int


class _SshRun(Run):
    """A run with its processes at the far ends of connections."""

    def __init__(self, job: SshJob, witness: Witness) -> None:
        self._remote = _RemoteLauncher(job)
        super().__init__(job, witness, self._remote)
        self._hosts = job.hosts
        self._ssh_job = job
        self._checks: List[subprocess.Popen[str]] = []

    # -- before the start ----------------------------------------------------------------------

    def _check_all(self) -> None:
        """Return if all hosts are ready, else say in a sentence why the first is not."""
        try:
            checked = self._look_at_all()
        finally:
            for process in self._checks:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # it may have children
                process.wait()
        bad = sorted(check for check in checked if check.fault)
        if bad:
            more = f" ({counted(len(bad) - 1, 'more host')} not ready)" if len(bad) > 1 else ""
            self._say(f"{bad[0].fault}{more}")
            raise Over(bad[0].code)

    def _look_at_all(self) -> List[_Checked]:
        hosts = list({host.login: host for host in self._hosts}.values())
        checked: List[_Checked] = []
        under_way = 0
        for index, host in enumerate(hosts):
            while under_way >= _MOST_LOGINS:
                under_way -= self._take(checked)
            self._look_at(index, host)
            under_way += 1
        while under_way:
            under_way -= self._take(checked)
        return checked

    def _take(self, checked: List[_Checked]) -> int:
        event = self._next_event()
        if not isinstance(event, _Checked):
            return 0
        checked.append(event)
        return 1

    def _look_at(self, index: int, host: HostSlots) -> None:
        job = self._ssh_job
        variables = _variables(job)
        path = {"PATH": variables["PATH"]} if "PATH" in variables else {}
        order = agent.Order(version(), job.folder, list(job.command), path, check=True)
        command = _login(job, host)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            self._say(f"cannot run {plain(command[0])}: {limits.reason(error)}")
            raise Over(_CANNOT_RUN) from error
        self._checks.append(process)
        threading.Thread(
            target=self._finish_look, args=(index, host, process, order.as_line()), daemon=True
        ).start()

    def _finish_look(
        self, index: int, host: HostSlots, process: "subprocess.Popen[str]", order: str
    ) -> None:
        try:
            out, err = process.communicate(order, timeout=_CHECK_S)
        except subprocess.TimeoutExpired:
            fault = f"{host.login}: no response over ssh in {_CHECK_S:g} s"
            self._launcher.put(_Checked(index, fault, _SSH_FAILED))
            return
        fault, code = _judge(host, out, err, process.returncode)
        self._launcher.put(_Checked(index, fault, code))

    # -- starting ------------------------------------------------------------------------------

    def _start_all(self) -> None:
        self._check_all()
        job = self._job
        workers, servers = places_of(self._hosts, job.num_workers, job.num_servers)
        self._start_on(self._hosts[0], "scheduler", "scheduler", {})
        self._await_port()
        for rank, host in enumerate(servers):
            env = {"DMLC_SERVER_ID": str(rank)}
            self._start_on(host, "server", f"server {rank}", env)
        meeting = self._remote.meeting_place()
        addresses = [host.address for host in workers]
        hosts = list(dict.fromkeys(addresses))
        for rank, host in enumerate(workers):
            share = addresses.count(host.address)
            before = addresses[:rank].count(host.address)
            number = hosts.index(host.address)
            ranks = torch_place.ranks(rank, len(workers), before, share, host=number)
            env = {**meeting, **ranks, "DMLC_WORKER_ID": str(rank)}
            self._start_on(host, "worker", f"worker {rank}", env, share)

    def _start_on(
        self, host: HostSlots, role: str, name: str, env: Mapping[str, str], share: int = 1
    ) -> None:
        self._await_room(host)
        try:
            child = self._remote.start_on(host, role, name, env, share)
        except OSError as error:
            self._say(f"cannot run {plain(self._ssh_job.ssh[0])}: {limits.reason(error)}")
            raise Over(_CANNOT_RUN) from error
        self._show(child, self._remote.outputs[child])

    def _await_room(self, host: HostSlots) -> None:
        """Wait until the host may get a further connection that has not logged in."""
        deadline = time.monotonic() + _GREETING_S
        children = [child for child in self._remote.children if isinstance(child, _RemoteChild)]
        there = [child for child in children if child.host == host.address]
        while sum(not child.greeted.is_set() for child in there) >= _MOST_LOGINS:
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)

    # -- watching ------------------------------------------------------------------------------

    def _waits(self, worker: Child) -> bool:
        return False  # the agent's bslaunch ends a worker that waits in vain

    def _leave_for(self, worker: Child) -> None:
        pass  # the agent's bslaunch does

    def _tell_code(self, worker: Child, code: int) -> None:
        pass  # the agent's bslaunch does

    def _signal_workers(self, number: int) -> None:
        for worker in self._launcher.workers:
            worker.signal_group(number)

    def _save(self, ended: Sequence[Child], number: int) -> bool:
        return False  # the agent's bslaunch waits for that


def _judge(host: HostSlots, out: str, err: str, code: Optional[int]) -> Tuple[str, int]:
    """Return why a host is not ready, by the output of its agent and its ssh, and an exit code."""
    verdicts = [line for line in out.splitlines() if line.split(" ")[0] in (agent.OK, agent.ERROR)]
    word, _, text = verdicts[-1].partition(" ") if verdicts else ("", "", "")
    if word == agent.OK and code == 0:  # else it is a word of a login
        return "", 0
    if word == agent.ERROR:
        return f"{host.login}: {text}", code or 1
    lines = [plain(line.strip()) for line in err.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {code}"
    if code == _SSH_FAILED:
        return f"ssh cannot reach {host.login}: {last}", _SSH_FAILED
    return (
        f"{host.login}: cannot run bytescheduler by {node_command()[0]} ({last}); install it at "
        "the same path as here",
        code if code and code > 0 else 1,
    )

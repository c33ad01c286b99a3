"""Jobs without processes of their own for servers: each worker's process hosts a server.

`WAYS` has a row for each way to start one.  `open_worker` joins it; `Worker.close` then waits until
all workers have left, as they need this process's server until then.
"""

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from bytescheduler._metrics.serving import serve
from bytescheduler._native import Node, Worker, await_names, check_settings
from bytescheduler._process.ports import Ports
from bytescheduler._process.say import counted, plain, say
from bytescheduler._settings import Settings
from bytescheduler._started.environments import (
    LaunchError,
    direct_place,
    launched_as,
    started_by,
)
from bytescheduler._started.hosted import (
    counts_no_servers,
    hosted_place,
    hosts_server,
    named_by_workers,
)
from bytescheduler.errors import ConfigError, Error, UsageError

if TYPE_CHECKING:
    from bytescheduler._metrics.exporter import Exporter

__all__ = [
    "WAYS",
    "Agree",
    "Listen",
    "Root",
    "Way",
    "agrees",
    "by_workers",
    "check_comm",
    "check_kind",
    "check_without_nccl",
    "check_left_over",
    "in_direct_job",
    "is_direct",
    "open_worker",
    "place_in_direct_job",
    "settings_of_launcher",
]


class Root(NamedTuple):
    """Where the scheduler node of a direct job listens.

    Parameters
    ----------
    host : str
        An address of its host; empty where DMLC_PS_ROOT_URI is right.
    port : int
        Its port.
    """

    host: str
    port: int


# Starts the scheduler node at a host, or at DMLC_PS_ROOT_URI; returns its port.
Listen = Callable[[str], int]
# Gets that in process 0, None in the others; returns the same port in all of them.
Agree = Callable[[Optional[Listen]], Root]
Variables = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to start direct jobs.

    Parameters
    ----------
    fits : callable
        Returns whether a process with these variables was started so, or is alone.
    place : callable
        Gets the variables, and whether the processes will agree on the scheduler node's port.
        Returns the settings of the process: counts, ranks, where the scheduler node is.  They are
        empty if the process is alone.  It raises `LaunchError` if the variables make no job.
    clause : callable
        Returns a clause that says how this process got its place; empty if the process is alone.
    has_root : bool
        True if the scheduler node is a process of its own; else that of rank 0 hosts it.
    """

    fits: Callable[[Variables], bool]
    place: Callable[[Variables, bool], Dict[str, str]]
    clause: Callable[[Variables], str]
    has_root: bool = False


# Libraries that sum in a direct job where BYTESCHEDULER_COMM names them, and its start by hand.
# src/node/worker/libraries.cc has them too.
_LIBRARIES = {"mpi": "mpirun -n 2", "nccl": "a launcher such as torchrun"}
_COMM = "BYTESCHEDULER_COMM"
_ROLES = ("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER")
_MEETING_PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ALONE = {
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_WORKER_ID": "0",
    "DMLC_SERVER_ID": "0",
}
_SCHEDULER = re.compile(r"\bthe scheduler node \(")
_PATIENCE_S = 10.0  # until nodes have heard that the job failed


class _Hosted:
    """The nodes that this process hosts; they end in the order of their start, but the first last.

    In a forked child they do not exist.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._nodes: List[Tuple[Node, Optional[Exporter]]] = []

    def start(self, role: str, settings: Mapping[str, str]) -> Node:
        """Start a node; the latest one ends first."""
        node = Node.start({**settings, "DMLC_ROLE": role})
        self._nodes.insert(0, (node, serve(node.measure, role)))
        return node

    def end(self, failed: bool) -> None:
        """Wait until the job is over, and close the nodes.  Blocks.

        Raises
        ------
        Error
            The job failed, unless the worker has `failed`, which then told so.
        """
        if os.getpid() != self._process:
            return
        failure: Optional[Error] = None
        reason = "the process that hosts it was interrupted"
        try:
            while self._nodes:
                try:
                    self._nodes[0][0].wait(_PATIENCE_S if failed else None)
                except Error as error:
                    failure = error
                self._close(*self._nodes.pop(0), "its worker has failed")
        finally:
            self.close(reason)
        if failure is not None and not failed:
            raise by_workers(failure)

    def close(self, reason: str) -> None:
        """Close the nodes; unless the job is over, all get `reason`."""
        while self._nodes:
            self._close(*self._nodes.pop(0), reason)

    @staticmethod
    def _close(node: Node, exporter: "Optional[Exporter]", reason: str) -> None:
        try:
            if exporter is not None:
                exporter.close()
        finally:
            node.close(reason)


def by_workers(error: Error) -> Error:
    """Return the error of a direct job with nodes named by the worker in whose process they are."""
    text = named_by_workers(str(error))
    if not hosts_server(os.environ):
        text = _SCHEDULER.sub("worker 0 (its scheduler node ", text)
    return type(error)(text, error.code)


def _shape(environment: Variables) -> List[str]:
    """Return the names of variables that tell this process its role in a job, or the job's size."""
    names = [name for name in _ROLES if environment.get(name)]
    return [] if names == ["DMLC_NUM_SERVER"] and counts_no_servers(environment) else names


def _clause_of_launcher(variables: Variables) -> str:
    launcher = started_by(variables)
    return "" if launcher is None else launched_as(launcher, variables)


# A new way to start direct jobs is a new row here; the first that fits counts.
WAYS: Tuple[Way, ...] = (
    Way(
        fits=hosts_server,
        place=lambda variables, _: hosted_place(variables),
        clause=lambda _: "DMLC_NUM_SERVER is 0",
        has_root=True,
    ),
    Way(
        fits=lambda variables: not _shape(variables),
        place=lambda variables, agree: direct_place(variables, agrees=agree),
        clause=_clause_of_launcher,
    ),
)


def _way(variables: Variables) -> Optional[Way]:
    return next((way for way in WAYS if way.fits(variables)), None)


def is_direct(variables: Optional[Variables] = None) -> bool:
    """Return True if this process hosts a server of its job, or is alone."""
    return _way(os.environ if variables is None else variables) is not None


def place_in_direct_job(
    variables: Optional[Variables] = None, *, agrees: bool = False
) -> Dict[str, str]:
    """Return the settings of this process in its direct job; empty if it is in none.

    Parameters
    ----------
    variables : mapping of str to str, optional
        Those of this process, if not its environment.
    agrees : bool
        See `direct_place`.

    Raises
    ------
    ConfigError
        The launcher's variables make no job.
    """
    environment = os.environ if variables is None else variables
    way = _way(environment)
    try:
        return {} if way is None else way.place(environment, agrees)
    except LaunchError as error:
        raise ConfigError(str(error), 1) from None


def in_direct_job(variables: Optional[Variables] = None) -> bool:
    """Return whether this process is a worker of a direct job; raises as `place_in_direct_job`."""
    return bool(place_in_direct_job(variables))


def check_left_over(variables: Optional[Variables] = None) -> None:
    """Raise ConfigError if counts of another job are set, and nothing gives this process a role."""
    environment = os.environ if variables is None else variables
    counts = _shape(environment)
    if environment.get("DMLC_ROLE") or not counts:
        return
    try:
        launcher = started_by(environment)
    except LaunchError as error:
        raise ConfigError(str(error), 1) from None
    if launcher is None and environment.get("DMLC_PS_ROOT_URI"):
        return  # a job by hand, which lacks the role alone
    values = " and ".join(f"{name}={plain(environment[name])}" for name in counts)
    names = " and ".join(counts)
    if launcher is None:
        raise ConfigError(
            f"{values} without DMLC_ROLE: unset {names} to train alone, or start the job with "
            "bslaunch",
            1,
        )
    raise ConfigError(
        f"{values} without DMLC_ROLE, and {launched_as(launcher, environment)}: unset {names} to "
        "let the workers host the servers, or put bslaunch --servers N before the script's command",
        1,
    )


def check_comm(comm: str, *, servers: str = "", started: str = "") -> None:
    """Raise ConfigError if sums cannot be made in this way in this job.

    Parameters
    ----------
    comm : str
        BYTESCHEDULER_COMM.
    servers : str
        The servers of the job, such as "2 servers"; empty: it has none of their own.
    started : str
        A clause that says how this process got its number; empty: it is alone.
    """
    wanted = f"{_COMM}={plain(comm)}"
    if servers:
        if comm in ("direct", *_LIBRARIES):
            raise ConfigError(
                f"{wanted}, and this job has {servers}: unset {_COMM}, or let the workers host the "
                "servers, by bslaunch -s 0, or by a launcher such as torchrun without DMLC_ROLE, "
                "DMLC_NUM_WORKER and DMLC_NUM_SERVER",
                1,
            )
    elif comm == "servers":
        raise ConfigError(
            f"{wanted}, and {started or 'no launcher has started this process'}, so there are no "
            f"servers: start the job with bslaunch --servers N, or unset {_COMM}",
            1,
        )
    elif comm in _LIBRARIES and not started:
        # The engine knows more, such as the launcher that a library needs.
        raise ConfigError(
            f"{wanted}, and no launcher has started this process: start it with "
            f"{_LIBRARIES[comm]}, or unset {_COMM}",
            1,
        )


def check_kind(variables: Optional[Variables] = None) -> None:
    """Raise ConfigError if a setting is wrong, or does not go with the kind of this process's job.

    BYTESCHEDULER_COMM and BYTESCHEDULER_REJOIN_TIMEOUT depend on the kind.
    """
    environment = os.environ if variables is None else variables
    settings = Settings.read()
    way = _way(environment)
    if way is None:
        number = settings.num_servers
        check_comm(settings.comm, servers=counted(number, "server") if number else "servers")
        return
    place = {**way.place(environment, True), "DMLC_NUM_SERVER": "0"} if way.has_root else _ALONE
    check_settings({"DMLC_PS_ROOT_PORT": "1", **place, "DMLC_ROLE": "worker"})
    try:
        clause = way.clause(environment)
    except LaunchError as error:
        raise ConfigError(str(error), 1) from None
    check_comm(settings.comm, started=clause)
    if settings.rejoin_s > 0 and clause:
        raise ConfigError(
            f"BYTESCHEDULER_REJOIN_TIMEOUT={settings.rejoin_s:g} in a direct job, where a lost "
            "worker takes its server with it: unset it, or start the job with bslaunch --servers N",
            1,
        )


def check_without_nccl(settings: Settings, framework: str) -> None:
    """Raise ConfigError if NCCL shall sum; the framework's tensors travel through the host."""
    setting, way_out = settings.nccl_by
    if setting:
        cure = "BYTESCHEDULER_COMM to direct or mpi" if settings.comm == "nccl" else way_out
        raise ConfigError(
            f"{setting}: NCCL sums tensors of GPUs, and {framework} travel through the host: "
            f"set {cure}",
            1,
        )


def settings_of_launcher(variables: Variables, *, agrees: bool) -> Dict[str, str]:
    """Return the settings of a direct job; if no launcher has started it, say so and return none.

    Raises
    ------
    ConfigError
        The launcher's variables make no job.
    """
    place = place_in_direct_job(variables, agrees=agrees)
    if not place and Settings.read().is_talkative:
        say(
            "bytescheduler: no launcher's variables are set, so this process trains alone; start "
            "several with bslaunch, or with another launcher such as torchrun"
        )
    return place


def agrees(variables: Variables) -> bool:
    """Return whether the variables of PyTorch's launchers are there, from RANK to MASTER_PORT."""
    return all(variables.get(name) for name in _MEETING_PLACE)


def _start_scheduler(
    hosted: _Hosted, place: Dict[str, str], agree: Optional[Agree], variables: Variables
) -> Dict[str, str]:
    """Start the scheduler node in process 0; return `place` with where it listens."""
    settings = {"DMLC_PS_ROOT_PORT": "0", **place}
    # The port of the setting is the server's.
    scheduler = {**settings, "DMLC_ROLE": "scheduler", "DMLC_PORT": "0"}

    def listen(host: str) -> int:
        address = {"DMLC_PS_ROOT_URI": host} if host else {}
        try:
            return hosted.start("scheduler", {**scheduler, **address}).port
        except UsageError as error:
            if variables.get("DMLC_PS_ROOT_PORT"):
                raise  # the engine says to change it
            raise UsageError(
                f"{error}; set DMLC_PS_ROOT_PORT to a free port in all processes", error.code
            ) from None

    await_names(scheduler)
    first = place["DMLC_WORKER_ID"] == "0"
    if "DMLC_PS_ROOT_PORT" not in place and agree is not None:
        root = agree(listen if first else None)
        settings["DMLC_PS_ROOT_PORT"] = str(root.port)
        if root.host:
            settings["DMLC_PS_ROOT_URI"] = root.host
    elif first:
        settings["DMLC_PS_ROOT_PORT"] = str(listen(""))
    return settings


def _start_server(hosted: _Hosted, settings: Dict[str, str], ports: Ports) -> Dict[str, str]:
    """Start the server that this process hosts; return the settings of its worker."""
    await_names({**settings, "DMLC_ROLE": "worker"})
    port = Settings.read().port
    if not port and "DMLC_SERVER_ID" not in settings:
        # Ranks that no node asks for follow the ports of a host.  So server and worker have one.
        port = ports.free(following=1)
    hosted.start("server", {**settings, "DMLC_PORT": str(port)})
    return {**settings, "DMLC_ROLE": "worker", "DMLC_PORT": str(port + 1 if port else 0)}


def open_worker(agree: Optional[Agree] = None, variables: Optional[Variables] = None) -> Worker:
    """Join the job that the variables tell of.  Blocks as `Worker.open`.

    Where they give a role, it is a job with servers of its own, unless DMLC_NUM_SERVER is 0.
    Otherwise it is a direct one, with the ranks that the launcher gave.  Where no launcher has
    started the process, it is alone.

    Parameters
    ----------
    agree : callable, optional
        Lets the processes agree on a free port, and on an address that all reach; called where
        PyTorch's variables are set, from RANK to MASTER_PORT.  Elsewhere, and without it, the port
        follows from the job's number.
    variables : mapping of str to str, optional
        Those of this process, if not its environment.

    Raises
    ------
    ConfigError
        The launcher's variables make no job, or a setting is wrong.
    UsageError
        The scheduler node's port is in use.
    Error
        As `Worker.open`.
    """
    environment = os.environ if variables is None else variables
    check_left_over(environment)
    check_kind(environment)
    way = _way(environment)
    if way is None:
        return Worker.open()
    meets = agree is not None and agrees(environment)
    place = settings_of_launcher(environment, agrees=meets) or {**_ALONE, "DMLC_PS_ROOT_PORT": "0"}
    hosted = _Hosted()
    try:
        if not way.has_root:
            place = _start_scheduler(hosted, place, agree, environment)
        with Ports() as ports:
            worker = Worker.open(_start_server(hosted, place, ports))
    except BaseException as error:
        hosted.close(f"its worker could not join: {error}")
        raise
    worker.end_with(hosted.end)
    return worker

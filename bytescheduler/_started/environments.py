"""The launchers that start the same command many times, and what each tells a process by variables.

`ENVIRONMENTS` has a row for each.  `place_in_job` makes of a process's variables its role in a job,
its rank, and where the job's scheduler node is.  `direct_place` does so for a job without processes
of its own for servers.
"""

import dataclasses
import socket
import zlib
from typing import Dict, Mapping, Optional, Tuple

from bytescheduler._process.say import counted, plain
from bytescheduler._process.where import bare
from bytescheduler._started.host_names import expand
from bytescheduler._started.starter import starter

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "LaunchError",
    "direct_place",
    "ends_survivors",
    "launched_as",
    "place_in_job",
    "started_by",
]

_FIRST_PORT, _PORTS = 20000, 10000  # below those that systems give to connections
_LARGEST_RANK = 2 * 16384
_LOOPBACK = "127.0.0.1"
Variables = Mapping[str, str]


class LaunchError(Exception):
    """The launcher's variables make no job; the message is one sentence for people."""


@dataclasses.dataclass(frozen=True)
class Environment:
    """A launcher, by the variables that it sets; of several names the first that is set counts.

    Parameters
    ----------
    name : str
        What messages call it.
    rank : str
        The variable with the number of the process, from 0.
    sizes : tuple of str
        The number of processes; without a name the job's shape must be given.
    local_sizes : tuple of str
        The number of processes on this host.
    num_hosts : tuple of str
        The number of hosts.
    node_lists : tuple of str
        The hosts, in Slurm's short form.  All processes of the job must see the same.
    job_ids : tuple of tuple of str
        The job; every variable of a tuple belongs to its number.
    below : tuple of str
        The launchers that start this one's own daemons, so that their variables are inherited.
    unless : tuple of pairs of str
        Where all of these variables have these values, the launcher has not started the process.
    pod : bool
        True if the host's name ends with the number of the process.
    mark : str
        A variable that this launcher alone sets, so that its number counts beside any other's.
    """

    name: str
    rank: str
    sizes: Tuple[str, ...] = ()
    local_sizes: Tuple[str, ...] = ()
    num_hosts: Tuple[str, ...] = ()
    node_lists: Tuple[str, ...] = ()
    job_ids: Tuple[Tuple[str, ...], ...] = ()
    below: Tuple[str, ...] = ()
    unless: Tuple[Tuple[str, str], ...] = ()
    pod: bool = False
    mark: str = ""


_TORCHRUN_MARK = "TORCHELASTIC_RUN_ID"
# Scripts of PyTorch need them under every launcher, so users pass them on.
_MEETING_HOST, _MEETING_PORT = "MASTER_ADDR", "MASTER_PORT"
_BATCH_IDS = (("SLURM_JOB_ID",), ("PBS_JOBID",), ("LSB_JOBID",))
_BATCH_HOSTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")

# A new launcher is a new row here, and one in src/config/launcher_rank.cc if its ranks may be
# those of workers.
ENVIRONMENTS: Tuple[Environment, ...] = (
    Environment(
        name="torchrun",
        rank="RANK",
        sizes=("WORLD_SIZE",),
        local_sizes=("LOCAL_WORLD_SIZE",),
        node_lists=("MASTER_ADDR",),
        job_ids=((_TORCHRUN_MARK, "MASTER_PORT"), ("MASTER_PORT",)),
        below=("Open MPI", "MPICH", "Slurm", "Kubernetes"),
        mark=_TORCHRUN_MARK,
    ),
    Environment(
        name="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        sizes=("OMPI_COMM_WORLD_SIZE",),
        local_sizes=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        node_lists=_BATCH_HOSTS,
        job_ids=(("PMIX_NAMESPACE",), ("OMPI_MCA_ess_base_jobid",), *_BATCH_IDS),
        below=("Slurm", "Kubernetes"),
    ),
    Environment(
        name="MPICH",
        rank="PMI_RANK",
        sizes=("PMI_SIZE",),
        local_sizes=("MPI_LOCALNRANKS",),
        node_lists=_BATCH_HOSTS,
        job_ids=_BATCH_IDS,
        below=("Slurm", "Kubernetes"),
    ),
    Environment(
        name="Slurm",
        rank="SLURM_PROCID",
        sizes=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        num_hosts=("SLURM_STEP_NUM_NODES", "SLURM_NNODES"),
        node_lists=("SLURM_STEP_NODELIST", *_BATCH_HOSTS),
        job_ids=(("SLURM_JOB_ID", "SLURM_STEP_ID"), ("SLURM_JOB_ID",)),
        # The batch script itself, which is no task.
        unless=(("ENVIRONMENT", "BATCH"), ("SLURM_STEP_ID", "")),
    ),
    Environment(
        name="Kubernetes",
        rank="JOB_COMPLETION_INDEX",
        pod=True,
    ),
)


def _first(variables: Variables, names: Tuple[str, ...]) -> Tuple[str, str]:
    """Return the first of `names` that is set, and its value; two empty texts if none is."""
    return next(((name, variables[name]) for name in names if variables.get(name)), ("", ""))


def _number(variables: Variables, names: Tuple[str, ...], least: int) -> Optional[int]:
    name, text = _first(variables, names)
    if not name:
        return None
    digits = text.lstrip("0") or text[:1]  # Python refuses to read very many
    is_number = text.isascii() and text.isdigit()
    if not is_number or not least <= int(digits[:9]) <= _LARGEST_RANK:
        raise LaunchError(f"{name}={plain(text)}: want a number from {least} to {_LARGEST_RANK}")
    return int(digits)


def _is_set(row: Environment, variables: Variables) -> bool:
    is_other = row.unless and all(variables.get(name, "") == value for name, value in row.unless)
    return bool(variables.get(row.rank)) and not is_other


def _describe(row: Environment, variables: Variables) -> str:
    name, size = _first(variables, row.sizes)
    rank = f"{row.rank}={plain(variables[row.rank])}"
    return f"{rank} of {name}={plain(size)}" if name else rank


def started_by(variables: Variables) -> Optional[Environment]:
    """Return the launcher that started this process, or None.

    Where several say the same, such as Slurm and a script that sets RANK from its variables, it is
    the outermost: that one knows the hosts and numbers the job.  A launcher that left its mark
    counts alone, as torchrun does inside of a task of Slurm.

    Raises
    ------
    LaunchError
        Two launchers contradict each other, or a number is malformed.
    """
    rows = [row for row in ENVIRONMENTS if _is_set(row, variables)]
    if not rows:
        return None
    inner = rows[0]
    if variables.get(inner.mark):
        return inner
    claim = _number(variables, (inner.rank,), 0), _number(variables, inner.sizes, 1)
    for launcher in rows[1:]:
        theirs = _number(variables, (launcher.rank,), 0), _number(variables, launcher.sizes, 1)
        sizes_differ = None not in (claim[1], theirs[1]) and claim[1] != theirs[1]
        if claim[0] == theirs[0] and not sizes_differ:
            inner, claim = (inner, claim) if theirs[1] is None else (launcher, theirs)
        # Daemons are one a host, so a launcher inside has another number of processes.
        elif not (launcher.name in inner.below and (sizes_differ or launcher.pod)):
            raise LaunchError(
                f"{_name(inner, variables)} and {launcher.name} contradict each other "
                f"({_describe(inner, variables)}, {_describe(launcher, variables)}): unset the "
                "variables of the one that did not start this process"
            )
    return inner


def _root_host(row: Environment, variables: Variables, rank: int, size: int) -> str:
    """Return where process 0 runs, as the others reach it."""
    host = variables.get("DMLC_PS_ROOT_URI", "")
    if host:
        return host
    name, text = _first(variables, row.node_lists)
    if name:
        return _first_host(name, text)
    if row.pod:
        return _first_pod(rank)
    if _is_on_one_host(row, variables, size):
        return _LOOPBACK
    if variables.get(_MEETING_HOST):
        return _first_host(_MEETING_HOST, variables[_MEETING_HOST])
    cure = "MASTER_ADDR" if _is_by_hand(row) else "DMLC_PS_ROOT_URI"
    raise LaunchError(
        f"{_subject(row, variables)} does not say on which host process 0 runs: set {cure} to that "
        f"host{_way_out(row, variables)}"
    )


def _first_host(name: str, text: str) -> str:
    """Return the first host of the list `text`, which the variable `name` has."""
    try:
        return expand(bare(text) if ":" in text else text)[0]
    except ValueError as error:
        raise LaunchError(
            f"{name}={plain(text)} cannot be read: {plain(str(error))}; set DMLC_PS_ROOT_URI "
            "to the host of process 0"
        ) from None


def _is_by_hand(row: Environment) -> bool:
    """Return whether people set these variables too, and know their names."""
    return row.rank == "RANK"


def _is_unmarked(row: Environment, variables: Variables) -> bool:
    """Return whether something else may have set this launcher's variables."""
    return bool(row.mark) and not variables.get(row.mark)


def _name(row: Environment, variables: Variables) -> str:
    return row.rank if _is_unmarked(row, variables) else row.name


def _starter(row: Environment, variables: Variables) -> str:
    return "this launcher" if _is_unmarked(row, variables) else row.name


def _subject(row: Environment, variables: Variables) -> str:
    """Return the beginning of a sentence about what the launcher leaves out."""
    if _is_unmarked(row, variables):
        return f"the environment has {_describe(row, variables)} and"
    return row.name


def _way_out(row: Environment, variables: Variables) -> str:
    """Return the end of a sentence: a single process may have its variables by accident."""
    if not _is_unmarked(row, variables):
        return ""
    return f", or unset {' and '.join((row.rank, *row.sizes))} to train alone"


def launched_as(row: Environment, variables: Variables) -> str:
    """Return a clause that says how this process got its number, such as its RANK."""
    number = _describe(row, variables)
    if _is_unmarked(row, variables):
        return f"this process has {number}"
    return f"{row.name} started this process ({number})"


def _is_on_one_host(row: Environment, variables: Variables, size: int) -> bool:
    local = _number(variables, row.local_sizes, 1)
    return local == size or _number(variables, row.num_hosts, 1) == 1


def _first_pod(rank: int) -> str:
    """Return the name of pod 0; that of pod 3 is train-3, or train-3.SERVICE.NAMESPACE..."""
    name = socket.getfqdn()
    pod, dot, rest = name.partition(".")
    stem, dash, index = pod.rpartition("-")
    if not dash or index != str(rank):
        raise LaunchError(
            f"this pod is called {plain(name)}, which does not end with "
            f"JOB_COMPLETION_INDEX={rank}: set DMLC_PS_ROOT_URI to the name of pod 0"
        )
    return f"{stem}-0{dot}{rest}"


def _root_port(row: Environment, variables: Variables, root: str, size: int) -> str:
    port = variables.get("DMLC_PS_ROOT_PORT", "")
    if port:
        return port
    names = next((n for n in row.job_ids if all(variables.get(name) for name in n)), ())
    job = ".".join(variables[name] for name in names)
    if not job and row.pod:
        job = root
    if not job and _is_on_one_host(row, variables, size):
        names = (row.rank, *row.sizes)
        job = f"daemon {starter({name: variables.get(name, '') for name in names})}"
    if not job and variables.get(_MEETING_HOST):
        job = variables.get(_MEETING_PORT, "")
    if not job:
        cure = "MASTER_PORT" if _is_by_hand(row) else "DMLC_PS_ROOT_PORT"
        raise LaunchError(
            f"{_subject(row, variables)} does not number its jobs: set {cure} to a free port of "
            f"the host of process 0{_way_out(row, variables)}"
        )
    return str(_FIRST_PORT + zlib.crc32(job.encode(errors="replace")) % _PORTS)


def _shape(
    row: Environment, variables: Variables, servers: Optional[int], workers: Optional[int]
) -> Tuple[int, int]:
    """Return the number of workers and of servers."""
    if servers is None:
        servers = _number(variables, ("DMLC_NUM_SERVER",), 0)
    if workers is None:
        workers = _number(variables, ("DMLC_NUM_WORKER",), 1)
    size = _number(variables, row.sizes, 1)
    started = launched_as(row, variables)
    if servers is None:
        raise LaunchError(
            f"{started}: say how many processes are servers with --servers N, or set DMLC_ROLE"
        )
    if size is None and workers is None:
        raise LaunchError(f"{started}: say how many are workers with --workers N")
    if size is None:
        return workers or 1, servers
    if size < servers + 2:
        raise LaunchError(
            f"too few processes of {_starter(row, variables)} for --servers {servers}: there are "
            f"{size}, want {servers + 2} or more, which are a scheduler node, the servers and a "
            "worker"
        )
    if workers is not None and workers != size - 1 - servers:
        raise LaunchError(
            f"the number of processes of {_starter(row, variables)} is {size}, and a scheduler "
            f"node, {counted(servers, 'server')} and {counted(workers, 'worker')} are "
            f"{1 + servers + workers}"
        )
    return size - 1 - servers, servers


def _place_of(rank: int, servers: int) -> Dict[str, str]:
    if rank == 0:
        return {"DMLC_ROLE": "scheduler"}
    if rank <= servers:
        return {"DMLC_ROLE": "server", "DMLC_SERVER_ID": str(rank - 1)}
    return {"DMLC_ROLE": "worker", "DMLC_WORKER_ID": str(rank - 1 - servers)}


def place_in_job(
    variables: Variables, servers: Optional[int] = None, workers: Optional[int] = None
) -> Dict[str, str]:
    """Return the DMLC_* variables of this process; empty if no launcher has started it.

    Process 0 is the scheduler node, the next ones are servers, the others workers, each with its
    rank in that order.

    Parameters
    ----------
    variables
        Those of this process.
    servers, workers
        Their numbers, where they were given; else DMLC_NUM_SERVER and DMLC_NUM_WORKER.

    Raises
    ------
    LaunchError
        The variables make no job.
    """
    row = started_by(variables)
    if row is None:
        return {}
    num_workers, num_servers = _shape(row, variables, servers, workers)
    rank = _number(variables, (row.rank,), 0)
    assert rank is not None
    count = 1 + num_servers + num_workers
    if rank >= count:
        raise LaunchError(
            f"{row.rank}={rank}: there are only {count} processes, which are a scheduler node, "
            f"{counted(num_servers, 'server')} and {counted(num_workers, 'worker')}"
        )
    root = _root_host(row, variables, rank, count)
    place = _place_of(rank, num_servers)
    for name in ("DMLC_WORKER_ID", "DMLC_SERVER_ID"):
        asked = variables.get(name)
        if asked and name in place and asked != place[name]:
            raise LaunchError(
                f"{name}={asked} contradicts {row.rank}={rank}, which gives this process rank "
                f"{place[name]}: unset {name}"
            )
    if row.pod:
        place["DMLC_USE_KUBERNETES"] = variables.get("DMLC_USE_KUBERNETES") or "1"
    return {
        **place,
        "DMLC_NUM_WORKER": str(num_workers),
        "DMLC_NUM_SERVER": str(num_servers),
        "DMLC_PS_ROOT_URI": root,
        "DMLC_PS_ROOT_PORT": _root_port(row, variables, root, count),
    }


def direct_place(variables: Variables, *, agrees: bool) -> Dict[str, str]:
    """Return the settings of a process in a job where each process is a worker and hosts a server.

    Process 0 hosts the scheduler node too.  Empty if no launcher has started it.

    Parameters
    ----------
    variables
        Those of this process.
    agrees : bool
        The processes will agree on the scheduler node's port: there is none here unless
        DMLC_PS_ROOT_PORT is set.

    Raises
    ------
    LaunchError
        The variables make no job.
    """
    row = started_by(variables)
    if row is None:
        return {}
    rank, size = _number(variables, (row.rank,), 0), _number(variables, row.sizes, 1)
    assert rank is not None
    if size is None:
        names = " or ".join(row.sizes) or "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        raise LaunchError(
            f"{launched_as(row, variables)} and does not say how many there are: set {names}, or "
            f"unset {row.rank} to train alone"
        )
    if rank >= size:
        raise LaunchError(f"{_describe(row, variables)}: want a number from 0 to {size - 1}")
    root = _root_host(row, variables, rank, size)
    place = {
        "DMLC_NUM_WORKER": str(size),
        "DMLC_NUM_SERVER": str(size),
        "DMLC_WORKER_ID": str(rank),
        "DMLC_SERVER_ID": str(rank),
        "DMLC_PS_ROOT_URI": root,
    }
    if not agrees or variables.get("DMLC_PS_ROOT_PORT"):
        place["DMLC_PS_ROOT_PORT"] = _root_port(row, variables, root, size)
    return place


def ends_survivors(variables: Variables) -> bool:
    """Return whether the launcher ends all workers as soon as it sees that one is lost."""
    return bool(variables.get(_TORCHRUN_MARK))

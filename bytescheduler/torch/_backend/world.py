"""The part of a process in the job of torch.distributed: its session, its groups."""

import os
import secrets
import sys
from typing import Any, Callable, Counter, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch.distributed import Store

from bytescheduler._process.say import counted
from bytescheduler._session.groups.members import Members
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import Round
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError
from bytescheduler.torch._backend import moves
from bytescheduler.torch._backend.base import NAME
from bytescheduler.torch._backend.completer import Completer
from bytescheduler.torch._backend.devices.staging import Stagings
from bytescheduler.torch._backend.group import Group
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.work import Work
from bytescheduler.torch._engine.wait_order import Order

__all__ = ["World"]

_Options = Any  # PyTorch's types are not read
# Joins the job that the variables tell of, by a store; None: this process is alone.
Open = Callable[[Mapping[str, str], Store], Optional[RoundSession]]
_PASSED_ON = ("DMLC_", "BYTESCHEDULER_", "TORCHELASTIC_")
_MOST_NAMED = 8  # ranks in the name of a group
_LOCAL_SIZE = "LOCAL_WORLD_SIZE"


def _host_of(store: Any) -> str:  # noqa: ANN401 - PyTorch's types are not read
    """Return the host that has the store; empty if it does not say."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", ""))


def _title_of(identity: str, made: int) -> str:
    """Return what messages call a group, alike on its ranks, as c10d's hashes may differ there."""
    return f"group {identity}" if identity.isdecimal() else f"local group {made}"


def _ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in words that leave room in a label."""
    if len(ranks) <= _MOST_NAMED:
        return f"ranks {', '.join(map(str, ranks))}"
    return f"{len(ranks)} ranks from {ranks[0]} to {ranks[-1]}"


def _variables(options: _Options) -> Dict[str, str]:
    """Return the variables of a launcher that has started this process as c10d's rank.

    `init_process_group` may have rank and size as arguments, so that no variable has them.
    """
    passed = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
    if _LOCAL_SIZE in os.environ:
        passed[_LOCAL_SIZE] = os.environ[_LOCAL_SIZE]
    host = os.environ.get("MASTER_ADDR") or _host_of(options.store) or "127.0.0.1"
    return {
        **passed,
        "RANK": str(options.group_rank),
        "WORLD_SIZE": str(options.group_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": os.environ.get("MASTER_PORT") or "1",  # the store meets, so no port is used
    }


def check_settings_of(backends: Mapping[str, str]) -> None:
    """Raise ConfigError if c10d's groups cannot be made as the settings and names want.

    Parameters
    ----------
    backends : mapping of str to str
        The backend of each kind of device.
    """
    apart = {device: name for device, name in backends.items() if name != NAME}
    if apart:
        pairs = ",".join(f"{device}:{name}" for device, name in backends.items())
        raise ConfigError(
            f'init_process_group("{pairs}"): PyTorch takes {NAME} for all devices and forgets '
            f'{" and ".join(sorted(set(apart.values())))}; use "{NAME}" alone, or another backend '
            "for all devices",
            1,
        )
    comm = Settings.read().comm
    if comm in ("mpi", "nccl"):
        raise ConfigError(
            f"BYTESCHEDULER_COMM={comm} lets that library sum, and the backend {NAME} of "
            "torch.distributed carries its collectives by itself: unset BYTESCHEDULER_COMM",
            1,
        )


class World:
    """The default group of this process and its subgroups.

    The session stays open after `destroy_process_group`, as another `init_process_group` may come:
    a process with servers apart joins their job once.  It ends when the process ends.

    Parameters
    ----------
    open_session : callable
        See `Open`.

    Attributes
    ----------
    stagings : Stagings
        The devices that have tensors of groups.
    """

    def __init__(self, open_session: Open) -> None:
        self._open = open_session
        self._session: Optional[RoundSession] = None
        self._completer: Optional[Completer] = None
        self._ranks: Tuple[int, ...] = ()  # workers of the job, by c10d's rank
        self._token = ""
        self._meetings = 0  # in this session
        self._order = Order()
        self.stagings = Stagings()
        # Groups by their ranks.  c10d's names may come again, and with local synchronisation they
        # may differ between the ranks of a group.
        self._made: Counter[Tuple[int, ...]] = Counter()
        self._store: Optional[Store] = None  # the default group's
        self._groups: List[Group] = []

    def unfinished(self) -> List[Round]:
        """See `Source`; a message that no rank may ever send is not waited for."""
        calls = [call for group in self._groups for call in group.exchanging()]
        return [call for call in calls if not call.only_receives]

    def at_end(self) -> None:
        """See `Source`; nothing is lost."""

    def create(self, options: _Options) -> Group:
        """Return a new group; the default group joins the job.  Blocks.

        Parameters
        ----------
        options : DistributedBackendOptions
            c10d's.

        Raises
        ------
        ConfigError, Timeout, PeerLost
            As `open_session`; or the job has another number of workers.
        """
        if not options.global_ranks_in_group:
            self._join(options)
            self._store = options.store
            ranks = tuple(range(options.group_size))
            name = "the default group"
        elif not self._groups:
            raise ConfigError(
                f'new_group(backend="{NAME}"): the default group has another backend, and a job '
                f'begins with the default group: call init_process_group("{NAME}"), and '
                'new_group(backend="gloo") behind it',
                1,
            )
        else:
            ranks = tuple(options.global_ranks_in_group)
            made = self._made[ranks] + 1
            name = f"{_title_of(str(options.group_id), made)} ({_ranks_text(ranks)})"
        self._made[ranks] += 1
        alone = len(ranks) == 1
        group = Group(
            Members(
                name,
                f"{self._token} {ranks} {self._made[ranks]}",
                tuple(self._ranks[rank] for rank in ranks),
                options.group_rank,
            ),
            None if alone else self._session,
            None if alone else self._completer,
            store=options.store,
            notes=self._store,
            stagings=self.stagings,
            order=self._order,
            timeout=options.timeout,
            title=options.group_id,
            on_close=lambda: self._forget(group),
        )
        self._groups.append(group)
        return group

    def _forget(self, group: Group) -> None:
        self._groups.remove(group)
        if not self._groups and self._completer is not None:
            self._completer.close()
            self._completer = None
            self.stagings.close()

    def _join(self, options: _Options) -> None:
        self._made.clear()
        if options.group_size == 1:
            self._ranks, self._token = (0,), ""
            return
        session = self._session
        if session is not None and session.failure is not None:
            session.close()
            session = None
        if session is None or not session.is_open:
            session = self._open(_variables(options), options.store)
        workers = 1 if session is None else session.num_workers
        if session is None or workers != options.group_size:
            raise ConfigError(
                f"init_process_group: world_size is {options.group_size}, and the job has "
                f"{counted(workers, 'worker')}: start as many processes as workers",
                1,
            )
        if session is not self._session:
            session.count(self)
            self._session, self._meetings = session, 0
        self._completer = Completer(session)
        self._meet(session, options)

    def _meet(self, session: RoundSession, options: _Options) -> None:
        """Learn the worker of each rank, and a text that no other world of the job has.

        bslaunch and scheduler nodes may give a worker another rank than c10d has.
        """
        numbers = torch.tensor([options.group_rank, secrets.randbits(62)])
        workers = torch.zeros(session.num_workers, 2, dtype=torch.int64)
        self._meetings += 1
        job = Members(
            f"the workers at init_process_group {self._meetings}",
            f"{NAME} world {self._meetings}",
            tuple(range(session.num_workers)),
            session.rank,
        )
        plan = Plan(job, 1, "all_gather")
        moves.all_gather(plan, 0, list(workers.unbind(0)), numbers)
        plan.complete()
        work = Work(session, plan)
        work.start(options.timeout.total_seconds(), None, 0)
        work.wait()
        ranks = workers[:, 0].tolist()
        if sorted(ranks) != list(range(options.group_size)):
            raise ConfigError(
                f"init_process_group: the workers of the job have the ranks {ranks}: give each "
                "process its own rank",
                1,
            )
        self._ranks = tuple(ranks.index(rank) for rank in range(options.group_size))
        self._token = f"{int(workers[self._ranks[0], 1]):x}"


def backends_at(depth: int) -> Dict[str, str]:
    """Return the backend of each kind of device in the call of c10d that makes a group.

    c10d does not tell a backend, so its own variable is read.

    Parameters
    ----------
    depth : int
        How many calls are between c10d's function and this one.
    """
    config: Any = sys._getframe(depth).f_locals.get("backend_config")
    if not hasattr(config, "get_device_backend_map"):
        return {}
    return {str(device): str(name) for device, name in config.get_device_backend_map().items()}

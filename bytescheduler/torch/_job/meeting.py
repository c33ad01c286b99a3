"""The store of PyTorch's launchers, by which processes learn where the scheduler node is."""

import datetime
import os
import threading
import time
import uuid
from typing import Callable, Iterable, List, Mapping, Optional, Protocol, Set

from bytescheduler._process.say import plain, say
from bytescheduler._process.where import addresses_of, bare, is_loopback, is_own
from bytescheduler._session.direct import Listen, Root
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error, Timeout

__all__ = ["Meeting", "OpenStore"]

Variables = Mapping[str, str]


class Store(Protocol):
    """A store of torch.distributed."""

    def add(self, key: str, number: int) -> int:
        """Add to a number, and return it."""

    def set(self, key: str, value: str) -> None:
        """Set a text."""

    def get(self, key: str) -> bytes:
        """Wait until it is set, and return it.  Blocks."""

    def check(self, keys: List[str]) -> bool:
        """Return whether all are set."""


# Gets the variables and a time in seconds; returns the store.
OpenStore = Callable[[Variables, float], Store]

_SILENT_S = 5.0  # until a line explains the wait
_LOOK_S = 0.02  # between two looks of process 0 into the store
_PREFIX = "bytescheduler"


class Meeting:
    """The way of this process to the store, which process 0 or torchrun has.

    torchrun's store outlives its workers, and an earlier life of the job may have left anything
    there.  No number tells lives apart: each agent counts restarts by itself.  So each process asks
    under a number that the store gives once, and process 0 answers every number.  Only a process
    that lives confirms an answer, and process 0 waits until all of them have.

    Parameters
    ----------
    variables : mapping of str to str
        Those of this process.
    open_store : callable, optional
        See `OpenStore`.
    """

    def __init__(
        self,
        variables: Variables = os.environ,
        open_store: Optional[OpenStore] = None,
    ) -> None:
        self._variables = variables
        self._open_store = open_store or _open_store
        # Process 0 may have it, so it stays until the process ends.
        self._store: Optional[Store] = None

    def agree(self, listen: Optional[Listen]) -> Root:
        """Return where the scheduler node is; process 0 passes its start, others None.  Blocks.

        Raises
        ------
        Timeout
            Not all processes came within BYTESCHEDULER_RENDEZVOUS_TIMEOUT.
        """
        settings = Settings.read()
        waiting = _waiting(self._variables)
        begun = threading.Timer(_SILENT_S, say, [f"bytescheduler: {waiting}"])
        begun.daemon = True
        if settings.is_talkative:
            begun.start()
        try:
            if self._store is None:
                self._store = self._open_store(self._variables, settings.rendezvous_s)
            if listen is None:
                return _ask(self._store, self._variables)
            return _Answers(self._store, self._variables, settings.rendezvous_s).give(listen)
        except RuntimeError as error:
            if isinstance(error, Error):
                raise
            failure = plain(str(error).partition("\n")[0])
            raise Timeout(f"{waiting}; {failure}", 2) from None
        finally:
            begun.cancel()


def _has_agents(variables: Variables) -> bool:
    """Return whether torchrun's agent has the store."""
    return variables.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def _open_store(variables: Variables, timeout_s: float) -> Store:
    from torch.distributed import TCPStore  # a build of PyTorch may be without

    # PyTorch's own env:// puts torchrun's count of restarts before keys in some versions, and does
    # not take brackets around a host.
    has_agents = _has_agents(variables)
    store: Store = TCPStore(
        bare(variables["MASTER_ADDR"]),
        int(variables["MASTER_PORT"]),
        int(variables["WORLD_SIZE"]),
        not has_agents and int(variables["RANK"]) == 0,
        timeout=datetime.timedelta(seconds=timeout_s),
        wait_for_workers=False,
        multi_tenant=not has_agents,
    )
    return store


def _address_of_root(variables: Variables) -> str:
    """Return the address of process 0 as this process reaches it; empty if no other host can."""
    address = next(iter(addresses_of(bare(variables["MASTER_ADDR"]))), "")
    return "" if not address or is_loopback(address) else address


def _ask(store: Store, variables: Variables) -> Root:
    """Ask process 0, and confirm its answer."""
    own_view = _address_of_root(variables)
    number = store.add(f"{_PREFIX} asked", 1)
    store.set(f"{_PREFIX} question {number}", f"{variables['RANK']} {own_view}")
    token, port, host = store.get(f"{_PREFIX} answer {number}").decode().split(" ", 2)
    store.set(f"{_PREFIX} {token} {variables['RANK']}", "")
    return Root("" if own_view else host, int(port))


class _Answers:
    """The answers of process 0 in one life of the job."""

    def __init__(self, store: Store, variables: Variables, timeout_s: float) -> None:
        self._store = store
        self._variables = variables
        self._end = time.monotonic() + timeout_s
        self._ranks = range(1, int(variables["WORLD_SIZE"]))
        self._number = 1  # the next question to read

    def give(self, listen: Listen) -> Root:
        """Let the scheduler node start, and say where until all have heard it."""
        host = self._address_from_questions() if _needs_address(self._variables) else ""
        root = Root(host, listen(host))
        token = uuid.uuid4().hex
        confirmations = {rank: f"{_PREFIX} {token} {rank}" for rank in self._ranks}
        self._number = 1
        while confirmations and not self._store.check(list(confirmations.values())):
            if self._next_question() is not None:
                answer = f"{_PREFIX} answer {self._number - 1}"
                self._store.set(answer, f"{token} {root.port} {root.host}")
                continue
            if time.monotonic() >= self._end:
                raise self._missing(
                    rank for rank, key in confirmations.items() if not self._store.check([key])
                )
            time.sleep(_LOOK_S)
        return root

    def _next_question(self) -> Optional[str]:
        """Return the question of that number, if there is one, and go on to the next number."""
        key = f"{_PREFIX} question {self._number}"
        if not self._store.check([key]):
            return None
        self._number += 1
        return str(self._store.get(key).decode())

    def _address_from_questions(self) -> str:
        """Return an address of this host by which others reach it; empty if all are local.  Blocks.

        Raises
        ------
        ConfigError
            Other hosts have other addresses for process 0.
        """
        seen: Set[int] = set()
        refused: Set[str] = set()
        # Questions of an earlier life may have the address of another process 0.
        while seen != set(self._ranks) or (refused and _has_agents(self._variables)):
            question = self._next_question()
            if question is not None:
                rank, _, address = question.partition(" ")
                if address and is_own(address):
                    return address
                seen.add(int(rank))
                refused |= {address} - {""}
            elif time.monotonic() < self._end:
                time.sleep(_LOOK_S)
            elif refused:
                break
            else:
                raise self._missing(set(self._ranks) - seen)
        if not refused:
            return ""
        raise ConfigError(
            f"MASTER_ADDR={plain(self._variables['MASTER_ADDR'])} leads to this host alone, and at "
            f"other hosts to {', '.join(map(plain, sorted(refused)))}, which is no address of this "
            "host: set DMLC_PS_ROOT_URI in all processes to an address of process 0",
            1,
        )

    @staticmethod
    def _missing(ranks: Iterable[int]) -> RuntimeError:
        return RuntimeError(f"still missing: RANK {', '.join(map(str, sorted(ranks)))}")


def _needs_address(variables: Variables) -> bool:
    """Return whether other hosts may not reach process 0 under the name that it has."""
    all_local = variables.get("LOCAL_WORLD_SIZE") == variables["WORLD_SIZE"]
    if all_local or variables.get("DMLC_PS_ROOT_URI"):
        return False
    return not _address_of_root(variables)


def _waiting(variables: Variables) -> str:
    """Return a sentence about the wait, and about its cure."""
    place = f"{plain(variables['MASTER_ADDR'])}:{plain(variables['MASTER_PORT'])}"
    return (
        f"process RANK={plain(variables['RANK'])} waits for the others at {place} (MASTER_ADDR, "
        f"MASTER_PORT); start all {plain(variables['WORLD_SIZE'])} (WORLD_SIZE) with equal values"
    )

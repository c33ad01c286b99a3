"""The part of a process group that is not a collective: its names, its calls under way, its end."""

import datetime
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

import torch
from torch.distributed import ProcessGroup

from bytescheduler._session.groups.carrier import Carrier
from bytescheduler._session.groups.members import Members
from bytescheduler.errors import Closed, ConfigError, Error, UsageError
from bytescheduler.torch._backend.arguments import is_asynchronous, timeout_of
from bytescheduler.torch._backend.completer import Completer
from bytescheduler.torch._backend.devices.passage import Passage
from bytescheduler.torch._backend.devices.staged_work import StagedWork
from bytescheduler.torch._backend.devices.staging import Stagings
from bytescheduler.torch._backend.memory import DEVICES
from bytescheduler.torch._backend.messages import Messages
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.work import Work
from bytescheduler.torch._engine.wait_order import Order

__all__ = ["NAME", "BaseGroup"]

NAME = "bytescheduler"
_PATIENCE_S = 10.0  # for calls under way when the group is destroyed


class BaseGroup(ProcessGroup):  # type: ignore[misc]
    """A process group, by the exchanges of its ranks.

    Parameters
    ----------
    members : Members
        Its ranks.
    carrier : Carrier, optional
        None: the group has one rank.
    completer : Completer, optional
        Ends calls for which no thread waits; None as above.
    store : Store
        That of torch.distributed.
    notes : Store, optional
        Where senders tell receivers of messages; `store`, if not given.
    stagings : Stagings, optional
        The devices of the process.
    order : Order, optional
        That of all groups of the process; None: the group learns alone.
    timeout : timedelta
        The time of each call.
    title : str
        c10d's name of the group.
    on_close : callable
        Called once, when the group is destroyed.
    """

    def __init__(
        self,
        members: Members,
        carrier: Optional[Carrier],
        completer: Optional[Completer],
        *,
        store: Any,  # noqa: ANN401 - PyTorch's types are not read
        notes: Any = None,  # noqa: ANN401
        stagings: Optional[Stagings] = None,
        order: Optional[Order] = None,
        timeout: datetime.timedelta,
        title: str = "",
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(members.rank, members.size)
        self._members = members
        self._carrier = carrier
        self._completer = completer
        self._store = store
        self._timeout_s = timeout.total_seconds()
        self._title = title
        self._description = ""
        self._on_close = on_close
        self._messages = Messages(members, store if notes is None else notes)
        self._stagings = Stagings() if stagings is None else stagings
        self._order = Order() if order is None else order
        self._number = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._mismatch: Optional[Error] = None
        self._refusals: weakref.WeakSet[Work] = weakref.WeakSet()
        self._calls: weakref.WeakValueDictionary[int, Work] = weakref.WeakValueDictionary()
        self._num_calls = 0

    # -- c10d's questions ----------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 - c10d's name
        """Return the name of the backend."""
        return NAME

    def name(self) -> str:
        """Return the name of the backend."""
        return NAME

    @property
    def group_name(self) -> str:
        """c10d's name of the group."""
        return self._title

    def _set_group_name(self, name: str) -> None:
        self._title = name

    @property
    def group_desc(self) -> str:
        """The text that `new_group` was given."""
        return self._description

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def _device_types(self) -> List[torch.device]:
        kinds = DEVICES if torch.cuda.is_available() else DEVICES[:1]
        return [torch.device(kind) for kind in kinds]

    @property
    def supports_splitting(self) -> bool:
        """False: c10d makes subgroups as it does without a bound device."""
        return False

    def _get_backend(self, device: torch.device) -> "BaseGroup":
        if torch.device(device).type not in DEVICES:
            raise RuntimeError(
                f"{NAME} has no backend for {device}: it takes tensors of the CPU and of NVIDIA's "
                "GPUs"
            )
        return self

    def get_group_store(self) -> Any:  # noqa: ANN401 - PyTorch's types are not read
        """Return the store of this group."""
        return self._store

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Change the time of each call to come."""
        self._timeout_s = timeout.total_seconds()

    def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
        self.set_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return self._number

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: all ranks count from the same number."""

    # -- the end -------------------------------------------------------------------------------

    def under_way(self) -> List[Work]:
        """Return the calls that have not ended, in the order in which they began."""
        with self._lock:
            calls = [call for _, call in sorted(self._calls.items(), key=lambda item: item[0])]
        return [call for call in calls if not call.poll()]

    def exchanging(self) -> List[Work]:
        """Return the calls whose exchanges are under way, but refusals, which may meet nothing."""
        calls = self.under_way()
        return [c for c in calls if not c.is_searching() and c not in self._refusals]

    def shutdown(self) -> None:
        """Wait for calls under way, up to ten seconds, and take no more.  Blocks."""
        end = time.monotonic() + _PATIENCE_S
        while self.exchanging() and time.monotonic() < end:
            time.sleep(0.001)
        self.abort()

    def abort(self) -> None:
        """Fail calls under way, here and on the ranks that wait for them, and take no more."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
        for call in self.under_way():
            call.fail(Closed(f"rank {self._members.rank} has destroyed its process group", 3))
        if is_first:
            self._on_close()

    # -- how a call begins ---------------------------------------------------------------------

    def _begin(
        self, kind: str, options: object, build: Callable[[Plan], None], timeout: object = None
    ) -> Work:
        """Begin a call.

        Parameters
        ----------
        kind : str
            Its name.
        options : object
            c10d's.
        build : callable
            States the plan, and adds its exchanges; its errors are told to the other ranks.
        timeout : object
            The argument of that name.
        """
        with self._lock:
            self._number += 1
            number = self._number
        plan = self._new_plan(number, kind)
        if self._mismatch is not None:
            return self._failed(plan, kind, self._mismatch)
        try:
            self._check_open(plan)
            with torch.inference_mode():  # tensors of that mode refuse copies outside
                build(plan)
                plan.complete()
        except Exception as error:
            self._refuse(plan, kind, error)
            raise
        work = self._start(plan, options, timeout)
        work.on_end(lambda: self._take_up(work.exception()))
        return work

    def _new_plan(self, number: int, kind: str) -> Plan:
        return Plan(self._members, number, kind, Passage(self._stagings))

    def _take_up(self, error: Optional[Exception]) -> None:
        """Fail all further calls after a mismatch: each rank may be at another call now."""
        if not isinstance(error, ConfigError) or self._mismatch is not None:
            return
        self._mismatch = error
        for call in self.under_way():
            call.fail(error)

    def _failed(self, plan: Plan, kind: str, error: Error) -> Work:
        self._refuse(plan, kind, error)
        work = Work(self._carrier, plan)
        work.fail(error)
        return work

    def _check_open(self, plan: Plan) -> None:
        if self._is_closed:
            raise UsageError(f"{plan.title}: the process group was destroyed", 5)

    def _refuse(self, plan: Plan, kind: str, error: Exception) -> None:
        """Tell the other ranks, where they meet, that this rank refuses the call."""
        if self._is_closed or self._members.size == 1:
            return
        refusal = Plan(self._members, plan.number, kind)
        refusal.state(text=f"which rank {self._members.rank} refuses: {error}")
        refusal.complete()
        self._refusals.add(self._start(refusal, None))

    def _count(self, work: Work, plan: Plan) -> None:
        with self._lock:
            self._check_open(plan)
            self._num_calls += 1
            self._calls[self._num_calls] = work

    def _start(self, plan: Plan, options: object, timeout: object = None) -> Work:
        blocks = not is_asynchronous(options)
        plan.passage.begin()
        kind = StagedWork if plan.passage.is_late else Work
        work = kind(self._carrier, plan, None if blocks else self._order.begin(plan.likeness))
        timeout_s = timeout_of(options, timeout, self._timeout_s)
        self._count(work, plan)
        if self._completer is None or not plan.exchanges or blocks:
            work.start(timeout_s, None, 0)
        else:
            token = self._completer.new_token()
            self._completer.keep(work, token)
            work.start(timeout_s, self._completer.completions, token)
        for earlier in plan.earlier:
            earlier.on_end(work.poll)
        return work

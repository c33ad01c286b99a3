"""Updates that wait for their sums: made where a weight is needed first, or all at once."""

import contextlib
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from bytescheduler._session.tally import CROSSES
from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.shadow import Shadow
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.slot import ARMED, IDLE, PUSHED, Slot

__all__ = ["Updates"]

# An update takes weights of this many elements along: what a call costs then counts little.
_TOGETHER = 1 << 18

OnGradient = Optional[Callable[[torch.nn.Parameter], None]]
_Kept = Tuple[torch.nn.Parameter, torch.Tensor]


class Updates:
    """Arms all parameters at step(), and updates each when its sum is needed.

    Parameters
    ----------
    inner : Optimizer
        Steps the parameters, by its own class.
    gradients : Gradients
        Where the sums come from.
    on_gradient : callable, optional
        May change the mean of a parameter before its update.
    unflushed : set
        Has this object as long as updates wait.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401
        gradients: Gradients,
        on_gradient: OnGradient,
        unflushed: Set[Any],
    ) -> None:
        self._gradients = gradients
        self._on_gradient = on_gradient
        self._unflushed = unflushed
        self._shadow = Shadow(inner)
        self._queue: List[
            Slot
        ] = []  # slots that `_ready` has not passed; what forward uses first is last
        self.waiting = 0  # slots that are ARMED
        self.ahead = 0  # slots that were taken along, and no guard of them has run since
        self.marked: List[Slot] = []  # on a device, updated, and several modules wait for them
        self.applying = False
        self.takes_along = True  # an update makes others that are there
        self._lock = threading.RLock()  # held from the first look at states to the last update

    def arm(self) -> None:
        """End a step: from here on each update is made when its weight is needed.

        The numbers of the optimizer are those of now, though schedulers change them right after.
        """
        with self._lock:
            self.flush()
            for slot in self.marked:
                slot.updated = None
            self.marked.clear()
            self._gradients.complete(CROSSES)
            self._shadow.snapshot()
            for slot in self._gradients.slots:
                if slot.state == PUSHED:
                    slot.param.grad = None  # it is the engine's until the update
                    slot.weight_version = slot.param._version
                    slot.state = ARMED
                    self.waiting += 1
            self._queue = sorted(self._gradients.slots, key=_urgency)
            if self.waiting:
                self._unflushed.add(self)

    def flush(self) -> None:
        """Make all updates that wait.  Blocks."""
        if self.waiting or self.ahead:
            self.apply(self._gradients.slots)
        elif self.marked:
            self.apply(self.marked)

    def apply(self, slots: Sequence[Slot]) -> None:
        """Update those of `slots` that are ARMED, in one step of the optimizer.  Blocks.

        If a wait is interrupted, no update was made here, but slots are no longer ahead.  Several
        threads may run the model: each returns when its weights are the newest.
        """
        with self._lock:
            self._apply(slots)

    def _apply(self, slots: Sequence[Slot]) -> None:
        armed: List[Slot] = []
        for slot in slots:
            if slot.state == ARMED:
                armed.append(slot)
            elif slot.is_ahead or slot.updated is not None:
                self.guarded(slot)
        if not armed:
            return
        self._gradients.wait(armed)
        armed = [slot for slot in armed if slot.state == ARMED]  # a signal's handler may flush
        if not armed:
            return
        self.applying = True
        try:
            with torch.inference_mode(False), torch.no_grad(), _outside():
                self._update(armed)
        finally:
            self.applying = False

    def guarded(self, slot: Slot) -> None:
        """Note that what uses a weight waits for it."""
        if slot.is_ahead:
            slot.is_ahead = False
            self.ahead -= 1
        if slot.device is not None and slot.updated is not None:
            slot.device.follow(slot.updated)
            if slot.guards < 2:
                slot.updated = None

    def _update(self, armed: List[Slot]) -> None:
        params: Dict[int, List[torch.nn.Parameter]] = {}
        kept: List[_Kept] = []
        # The plain optimizer passes over a weight of which no worker has a gradient.
        used = [slot for slot in armed if self._gradients.is_used(slot)]
        along: List[Slot] = []
        if self.takes_along:
            along += self._ready(_TOGETHER - sum(slot.elements for slot in armed), armed)
        for slot in used + along:
            _check_weight(slot)
        means = [self._gradients.mean(slot) for slot in used + along]  # memory may be short
        for slot in armed + along:
            self._gradients.let_go(slot)
            slot.state = IDLE
        for slot in along:
            # A use without a guard is found as if it were ARMED still.
            slot.is_ahead = True
            self.ahead += 1
        try:
            for slot, mean in zip(used + along, means):
                self._take(slot, mean, params, kept)
            if params:
                self._shadow.step(params)
            for slot in armed + along:
                if slot.device is not None:
                    self._mark(slot)
        finally:
            # Not before, as a guard in another thread passes where nothing waits.
            self.waiting -= len(armed) + len(along)
            if not self.waiting:
                self._unflushed.discard(self)
            for these in params.values():
                for param in these:
                    param.grad = None
            for param, grad in kept:
                param.grad = grad

    def _mark(self, slot: Slot) -> None:
        """Let modules on other streams wait for an update of this one."""
        assert slot.device is not None
        if slot.is_ahead or slot.guards > 1:
            slot.updated = slot.device.mark()
        if slot.guards > 1:
            self.marked.append(slot)

    def _ready(self, room: int, armed: List[Slot]) -> Iterator[Slot]:
        """Yield what forward uses after `armed`, as far as its sums are there and it is small."""
        queue, taken = self._queue, set(armed)
        while queue:
            slot = queue[-1]
            is_armed = slot.state == ARMED and slot not in taken
            if is_armed and (slot.elements > room or not slot.had_gradient or not _is_there(slot)):
                return
            queue.pop()
            if is_armed:
                room -= slot.elements
                yield slot

    def _take(
        self,
        slot: Slot,
        mean: torch.Tensor,
        params: Dict[int, List[torch.nn.Parameter]],
        kept: List[_Kept],
    ) -> None:
        """Give a parameter its mean, and add it to those of its group."""
        param = slot.param
        if param.grad is not None:
            kept.append((param, param.grad))
        param.grad = mean
        params.setdefault(slot.group, []).append(param)
        if self._on_gradient is not None:
            self._on_gradient(param)


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Leave what records or transforms the forward pass around an update, which is no part of it.

    That is `torch.func.grad` and its like, which refuse to change a weight, `torch.jit.trace`, and
    autocast, under which some optimizers compute less exactly.
    """
    transforms = getattr(torch._C, "_DisableFuncTorch", contextlib.nullcontext)
    trace = torch._C._get_tracing_state()
    if trace is not None:
        torch._C._set_tracing_state(None)
    try:
        with transforms(), torch._C._DisableAutocast():
            yield
    finally:
        if trace is not None:
            torch._C._set_tracing_state(trace)


def _check_weight(slot: Slot) -> None:
    if slot.param._version != slot.weight_version:
        raise UsageError(
            f"{slot.name}: it was changed after step() and before its update, which waits for a "
            "sum; call optimizer.synchronize() after step() before weights are changed",
            5,
        )


def _urgency(slot: Slot) -> int:
    return slot.priority


def _is_there(slot: Slot) -> bool:
    assert slot.pending is not None
    try:
        return slot.pending.over()
    except RuntimeError:  # the job's or a device's; the guard of this weight raises it
        return False

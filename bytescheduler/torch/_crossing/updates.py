"""Updates that wait for their sums: made where a weight is used first, or all at once."""

import contextlib
import operator
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

import torch
from torch.overrides import _pop_mode, _push_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

from bytescheduler._session.tally import CROSSES
from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.calls import Calls
from bytescheduler.torch._crossing.compilers import Compilations, eagerly, not_compiling
from bytescheduler.torch._crossing.look import Look
from bytescheduler.torch._crossing.resting import Resting
from bytescheduler.torch._crossing.shadow import Shadow
from bytescheduler.torch._crossing.waiting import (
    GRAD,
    Use,
    begin_update,
    end_wait,
    end_waits,
    let_all_wait,
)
from bytescheduler.torch._crossing.waiting_gradients import Kept, WaitingGradients
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.means import is_left
from bytescheduler.torch._gradients.slot import ARMED, IDLE, PUSHED, Slot

__all__ = ["Updates"]

# An update takes weights of this many elements along: what a call costs then counts little.
_TOGETHER = 1 << 18
_URGENCY = operator.attrgetter("priority")

OnGradient = Optional[Callable[[torch.nn.Parameter], None]]


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
    guarded : bool
        Whether modules of the model are guarded; without guards compiled code sees no wait.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401
        gradients: Gradients,
        on_gradient: OnGradient,
        unflushed: Set[Any],
        *,
        guarded: bool,
    ) -> None:
        self._gradients = gradients
        self.gradients = False  # see `User`
        self._on_gradient = on_gradient
        self._unflushed = unflushed
        self._shadow = Shadow(inner)
        # Slots that `_ready` has not passed; what forward uses first is last.
        self._queue: List[Slot] = []
        self.waiting = 0  # slots that are ARMED
        self.marked: List[Slot] = []  # on a device, updated, and other streams may use them
        self.look = Look()
        self.at_once: List[Slot] = []  # weights of which some uses may not be seen
        self.resting = Resting()
        self._blind: Optional[str] = None  # the reason why a use may not be seen
        self._unseen: List[Slot] = []  # code was compiled before the look saw a use of them
        self._slots: Dict[int, Slot] = {}  # by their parameters
        self._is_guarded = guarded
        self._updating = False
        self._calls = None if guarded else Calls()
        self._compilations = Compilations(self._compiles)
        self._lock = threading.RLock()  # held from the first look at states to the last update
        self._means = WaitingGradients(gradients, self.apply, self._lock)

    def arm(self) -> None:
        """End a step: from here on each update is made when its weight is needed.

        The numbers of the optimizer are those of now, though schedulers change them right after.
        """
        with self._lock:
            self.flush()
            for slot in self.marked:
                slot.updated = None
                end_wait(slot.param)
            self.marked.clear()
            self._gradients.complete(CROSSES)
            self._shadow.snapshot()
            armed = [slot for slot in self._gradients.slots if slot.state == PUSHED]
            for slot in armed:
                slot.weight_version = slot.param._version
                slot.state = ARMED
            self._slots = {id(slot.param): slot for slot in armed}
            let_all_wait([slot.param for slot in armed], self)
            self.waiting += len(armed)
            self._queue = sorted(self._gradients.slots, key=_URGENCY)
            if self.waiting:
                self.resting.wake()
                self._unflushed.add(self)
                if self._calls is not None:
                    self._calls.hear()
            self._means.begin(armed)
            if self.at_once:
                self.apply(self.at_once)

    def why_blind(self) -> Optional[str]:
        """Return why weights may be used where it is not seen, after a backward pass; or None."""
        hidden, outside = self.look.end()
        self.at_once += [slot for slot in outside if _has_gradient(slot)]
        unseen = [(slot, "compiled code, which needs model=model") for slot in self._unseen]
        unseen += [(slot, "code that Python does not see") for slot in hidden]
        self._unseen = []
        for slot, code in unseen:
            if self._blind is None and _has_gradient(slot):
                self._blind = f"{slot.name} is used by {code}"
        return self._blind

    def _compiles(self) -> None:
        """Let the compiler see plain weights, as it would trace their wait into its graphs.

        A guard breaks a graph before weights are used.  Without guards nothing waits from now on.
        """
        if self._updating:
            return
        unseen, outside = self.look.end()
        self.resting.end()
        if self._is_guarded:
            return
        self._unseen += unseen + outside
        if self.waiting:
            self._blind = "code is compiled that uses weights, which needs model=model"
            with eagerly():
                self.flush()

    def close(self) -> None:
        """Look at nothing any more, and make all updates.  Blocks."""
        self._compilations.close()
        self.look.end()
        self.flush()

    def use(self, params: List[torch.Tensor]) -> None:
        """See `User` of `waiting`."""
        self.apply([self._slots[id(param)] for param in params])

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """See `User` of `waiting`."""
        self.use(params)

    def see_gradient(self, param: torch.Tensor, *, replaced: bool) -> None:
        """See `User` of `waiting`."""
        self._means.see(self._slots[id(param)], replaced=replaced)

    def drop_gradients(self) -> None:
        """Take note that a script wants none of the gradients that wait."""
        if self.waiting:
            self._means.drop(self._gradients.slots)

    def used(self, params: List[torch.Tensor], use: Optional[Use]) -> None:
        """See `User` of `waiting`."""

    def flush(self) -> None:
        """Make all updates that wait.  Blocks."""
        if self.waiting:
            self.apply(self._gradients.slots)
        elif self.marked:
            self.apply(self.marked)

    def apply(self, slots: Sequence[Slot]) -> None:
        """Update those of `slots` that are ARMED, in one step of the optimizer.  Blocks.

        If a wait is interrupted, no update was made here.  Several threads may run the model: each
        returns when its weights are the newest.
        """
        with self._lock:
            self._apply(slots)

    def _apply(self, slots: Sequence[Slot]) -> None:
        armed: List[Slot] = []
        for slot in slots:
            if slot.state == ARMED:
                armed.append(slot)
            elif slot.updated is not None:
                self._follow(slot)
        if not armed:
            return
        self._gradients.wait(armed)
        armed = [slot for slot in armed if slot.state == ARMED]  # a signal's handler may flush
        if not armed:
            return
        self._updating = True
        try:
            with torch.inference_mode(False), torch.no_grad(), _outside():
                self._update(armed)
        finally:
            self._updating = False

    @staticmethod
    def _follow(slot: Slot) -> None:
        """Let the current stream wait for an update of another one."""
        assert slot.device is not None
        assert slot.updated is not None
        slot.device.follow(slot.updated)
        end_wait(slot.param)
        if slot.guards < 2:
            slot.updated = None

    def _update(self, armed: List[Slot]) -> None:
        kept: List[Kept] = []
        stay: Set[Slot] = set()
        # The plain optimizer passes over a weight of which no worker has a gradient.
        along = _bundled_with(armed)
        room = _TOGETHER - sum(slot.elements for slot in armed)
        along += self._ready(room, armed + along)
        both = armed + along
        gradients = self._gradients
        used = [slot for slot in both if slot.had_gradient or gradients.is_used(slot)]
        _check_weights(used)
        means = gradients.means(used)  # memory may be short
        for slot in both:
            slot.pending = None
            slot.passes = 0
            slot.state = IDLE
        begin_update([slot.param for slot in used])
        try:
            self._means.arrive(used, means, stay, kept)
            params = self._taken(used)
            if params:
                are_here = all([slot.device is None for slot in used])
                self._shadow.step(params, are_here=are_here)
            for slot in armed:
                if slot.guards > 1:
                    self._mark(slot)
            for slot in along:
                if slot.device is not None:
                    self._mark(slot)
        finally:
            # Not before, as another thread uses weights where nothing waits.
            self.waiting -= len(both)
            if not self.waiting:
                self._unflushed.discard(self)
                if self._calls is not None:
                    self._calls.rest()
            with torch._C.DisableTorchFunctionSubclass():
                for param, grad in kept:
                    GRAD.__set__(param, grad)
            del means
            self._means.end(both, stay)
            end_waits([slot.param for slot in armed])
            end_waits([slot.param for slot in along if slot.updated is None])
            bundles = {slot.bundle for slot in both if slot.bundle is not None}
            for bundle in bundles:
                bundle.renew()
            self.resting.rest(bundles)

    def _mark(self, slot: Slot) -> None:
        """Let uses on other streams wait for an update of this one."""
        if slot.device is not None:
            slot.updated = slot.device.mark()
            self.marked.append(slot)

    def _ready(self, room: int, armed: List[Slot]) -> Iterator[Slot]:
        """Yield what forward uses after `armed`, as far as its sums are there and it is small."""
        queue, taken = self._queue, set(armed)
        while queue:
            slot = queue[-1]
            if slot.state == ARMED and slot not in taken:
                bundle = slot.bundle
                elements = slot.elements if bundle is None else bundle.elements
                has_gradient = slot.had_gradient if bundle is None else bundle.has_all
                if elements > room or not has_gradient or not _is_there(slot):
                    return
                room -= elements
                together = [slot] if bundle is None else bundle.slots
                taken.update(together)
                yield from together
            queue.pop()

    def _taken(self, slots: List[Slot]) -> Dict[int, List[torch.nn.Parameter]]:
        """Return the parameters of each group, which have their means."""
        params: Dict[int, List[torch.nn.Parameter]] = {slot.group: [] for slot in slots}
        for slot in slots:
            params[slot.group].append(slot.param)
            if self._on_gradient is not None:
                self._on_gradient(slot.param)
        return params


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Leave what records or transforms the forward pass around an update, which is no part of it.

    It leaves `torch.func.grad` and its like, which refuse to change a weight, `torch.jit.trace` and
    modes that look at operations or at functions.  It leaves autocast and compilation, in which
    some optimizers compute otherwise.  The update is no use of weights that wait.
    """
    transforms = getattr(torch._C, "_DisableFuncTorch", contextlib.nullcontext)
    is_seen = torch._C._len_torch_dispatch_stack()
    modes: Any = _disable_current_modes if is_seen else contextlib.nullcontext
    uses, autocast = torch._C.DisableTorchFunctionSubclass, torch._C._DisableAutocast
    trace = torch._C._get_tracing_state()
    if trace is not None:
        torch._C._set_tracing_state(None)
    try:
        with modes(), _function_modes(), uses(), transforms(), autocast(), not_compiling():
            yield
    finally:
        if trace is not None:
            torch._C._set_tracing_state(trace)


@contextlib.contextmanager
def _function_modes() -> Iterator[None]:
    """Leave modes of `__torch_function__`, but for the device on which a script makes tensors."""
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    devices = [mode for mode in reversed(modes) if isinstance(mode, DeviceContext)]
    try:
        for mode in devices:
            _push_mode(mode)
        yield
    finally:
        for _ in devices:
            _pop_mode()
        for mode in reversed(modes):
            _push_mode(mode)


def _has_gradient(slot: Slot) -> bool:
    """Return whether the latest backward pass, or a script, has made a gradient."""
    grad = slot.param.grad
    if grad is None or slot.state == PUSHED:
        return grad is not None
    return not is_left(grad) and bool(grad.any())


def _check_weights(slots: Sequence[Slot]) -> None:
    changed = [slot for slot in slots if slot.param._version != slot.weight_version]
    if changed:
        raise UsageError(
            f"{changed[0].name}: it was changed after step() and before its update, which waits "
            "for a sum; call optimizer.synchronize() after step() before weights are changed",
            5,
        )


def _bundled_with(slots: Sequence[Slot]) -> List[Slot]:
    """Return the members of the bundles of `slots` that are not among them."""
    bundles = {id(slot.bundle): slot.bundle for slot in slots if slot.bundle is not None}
    if not bundles:
        return []
    taken = set(slots)
    return [slot for bundle in bundles.values() for slot in bundle.slots if slot not in taken]


def _is_there(slot: Slot) -> bool:
    assert slot.pending is not None
    try:
        return slot.pending.over()
    except RuntimeError:  # the job's or a device's; the guard of this weight raises it
        return False

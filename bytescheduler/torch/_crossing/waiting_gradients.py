"""Gradients that wait: `p.grad` behind a step() that crosses, before the update has its mean.

The gradient that was sent stays in `p.grad`.  Its first use makes the update and lets it be the
mean.  Dropping it, or making it zeros, waits for nothing.
"""

import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.waiting import GRAD, Use, end_wait, end_waits, let_all_wait
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.means import (
    become_mean,
    become_means,
    kept_mean,
    leave,
    lend_mean,
    seen_elsewhere,
    take_back,
    zeros_as,
)
from bytescheduler.torch._gradients.memory import COUNTS, are_alone
from bytescheduler.torch._gradients.slot import ARMED, Slot

__all__ = ["Kept", "WaitingGradients"]

Kept = Tuple[torch.nn.Parameter, Optional[torch.Tensor]]


class _Owner:
    """Stands for `WaitingGradients` in gradients, through which Python's collector sees no cycle.

    Parameters
    ----------
    owner : WaitingGradients
        Not kept alive.
    """

    gradients = True

    def __init__(self, owner: "WaitingGradients") -> None:
        self._owner = weakref.ref(owner)

    def _get(self) -> "WaitingGradients":
        owner = self._owner()
        if owner is None:
            raise UsageError(
                "a gradient is used after its optimizer is gone, which did not update its weight; "
                "call optimizer.synchronize() before the optimizer goes",
                5,
            )
        return owner

    def use(self, params: List[torch.Tensor]) -> None:
        """See `User`."""
        self._get().use(params)

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """See `User`."""
        self._get().overwrite(params)

    def see_gradient(self, param: torch.Tensor, *, replaced: bool) -> None:
        """See `User`: a gradient has no gradient."""

    def used(self, params: List[torch.Tensor], use: Optional[Use]) -> None:
        """See `User`."""


class WaitingGradients:
    """The gradients of slots that are ARMED; see `User`.

    Parameters
    ----------
    gradients : Gradients
        Tells which gradients another worker has.
    apply : callable
        Makes the updates of slots.
    lock : RLock
        Held while the states of slots are read or changed.
    """

    def __init__(
        self,
        gradients: Gradients,
        apply: Callable[[List[Slot]], None],
        lock: "threading.RLock",
    ) -> None:
        self._gradients = gradients
        self._apply = apply
        self._lock: Any = lock
        self._owner = _Owner(self)
        self._waits: List[Slot] = []  # whose gradients wait
        self._slots: Dict[int, List[Slot]] = {}  # the same, by their gradients, once one is used
        self._dropped: Dict[int, Slot] = {}  # by index: no gradient was made here, none is wanted

    def begin(self, slots: List[Slot]) -> None:
        """Let the gradients of `slots` wait, which are ARMED now."""
        self._slots.clear()
        self._dropped.clear()
        self._waits = made = [slot for slot in slots if slot.had_gradient]
        elsewhere = seen_elsewhere(made)
        let_all_wait([slot.sent for slot in made if slot.sent is not None], self._owner)
        if elsewhere:
            self._apply(elsewhere)

    # -- uses ----------------------------------------------------------------------------------

    def use(self, params: List[torch.Tensor]) -> None:
        """Make updates, and let gradients be means that are about to be used.  Blocks."""
        with self._lock:
            self._apply([slot for grad in params for slot in self._waiting(grad)])

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """Give gradients that become zeros other memory, as the engine still reads theirs."""
        with self._lock, torch.inference_mode(False), torch.no_grad():
            for grad in params:
                slots = self._waiting(grad)
                end_wait(grad)
                for slot in slots:
                    slot.sent = grad.detach()
                if slots:
                    grad.data = torch.empty_like(grad)

    def _waiting(self, grad: torch.Tensor) -> List[Slot]:
        for slot in self._waits:
            self._slots.setdefault(id(slot.sent), []).append(slot)
        self._waits = []
        slots = self._slots.get(id(grad), [])
        return [slot for slot in slots if slot.state == ARMED and slot.sent is grad]

    # -- gradients that only another worker has ------------------------------------------------

    def see(self, slot: Slot, *, replaced: bool) -> None:
        """Take note that a script reads or replaces the gradient of a slot that is ARMED.

        Where no gradient was made here, another worker may have one: then it waits too.
        """
        if slot.had_gradient or slot.index in self._dropped:
            return
        with self._lock:
            if slot.state != ARMED or slot.sent is not None:
                return
            if replaced:
                self._dropped[slot.index] = slot
            elif self._gradients.tally.is_used(slot.index):
                slot.sent = zeros_as(slot.param)
                slot.param.grad = slot.sent
                self._waits.append(slot)
                let_all_wait([slot.sent], self._owner)

    def drop(self, slots: List[Slot]) -> None:
        """Take note that a script wants no gradient of `slots`."""
        for slot in slots:
            if slot.state == ARMED and not slot.had_gradient:
                self.see(slot, replaced=True)

    # -- updates -------------------------------------------------------------------------------

    def arrive(
        self, slots: List[Slot], means: List[torch.Tensor], stay: Set[Slot], kept: List[Kept]
    ) -> None:
        """Let gradients in `p.grad` be means for an update.

        A gradient does not stay where a script has dropped it, or has put another one in its place.

        Parameters
        ----------
        slots : list of Slot
            Some worker has a gradient of each.
        means : list of Tensor
            Their means.
        stay : set of Slot
            Gets the slots whose gradients stay.
        kept : list of pairs
            Gets other parameters, and what their `p.grad` is to be after the update.
        """
        copied: List[Tuple[Slot, torch.Tensor]] = []
        get, put = GRAD.__get__, GRAD.__set__
        all_sent = [slot.sent for slot in slots]
        alone = are_alone(all_sent, 1) if COUNTS else [False] * len(all_sent)
        for slot, mean, sent, is_alone in zip(slots, means, all_sent, alone):
            param = slot.param
            grad = get(param)
            if is_alone and grad is not sent and slot.bundle is not None:
                slot.sent = None  # nothing can see the mean after the update
                put(param, mean)
                kept.append((param, grad))
                continue
            stays = grad is sent
            if sent is None:
                stays = stays and slot.index not in self._dropped
                put(param, kept_mean(slot, mean))
            else:
                self._give(slot, sent, mean, copied, stays=stays)
            if stays:
                stay.add(slot)
            else:
                kept.append((param, grad))
        become_means(copied)

    @staticmethod
    def _give(
        slot: Slot,
        sent: torch.Tensor,
        mean: torch.Tensor,
        copied: List[Tuple[Slot, torch.Tensor]],
        *,
        stays: bool,
    ) -> None:
        if slot.bundle is not None:
            copied.append((slot, sent))
        elif stays:
            become_mean(slot, sent, mean)
        else:
            lend_mean(slot, sent, mean)
        if not stays:
            GRAD.__set__(slot.param, sent)

    @staticmethod
    def end(slots: List[Slot], stay: Set[Slot]) -> None:
        """End the wait of gradients, of which those of `stay` stay; the updates were made."""
        end_waits([slot.sent for slot in slots if slot.sent is not None])
        for slot in slots:
            slot.sent = None
            if slot in stay:
                leave(slot.param)
            elif slot.bundle is None:
                take_back(slot)

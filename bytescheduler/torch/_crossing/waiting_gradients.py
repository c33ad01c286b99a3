"""Gradients that wait: `p.grad` behind a step() that crosses, before the update has its mean.

The gradient that was sent stays in `p.grad`.  Its first use makes the update and lets it be the
mean.  Dropping it, or making it zeros, waits for nothing.
"""

import threading
from typing import Any, Callable, Dict, List, Optional

import torch

from bytescheduler.torch._crossing.waiting import Use, end_wait, let_wait
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.means import (
    become_mean,
    kept_mean,
    leave,
    lend_mean,
    seen_elsewhere,
    take_back,
    zeros_as,
)
from bytescheduler.torch._gradients.slot import ARMED, Slot

__all__ = ["WaitingGradients"]


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

    gradients = True

    def __init__(
        self,
        gradients: Gradients,
        apply: Callable[[List[Slot]], None],
        lock: "threading.RLock",
    ) -> None:
        self._gradients = gradients
        self._apply = apply
        self._lock: Any = lock
        self._slots: Dict[int, List[Slot]] = {}  # by the gradients that wait
        self._dropped: Dict[int, Slot] = {}  # by index: no gradient was made here, none is wanted

    def begin(self, slots: List[Slot]) -> None:
        """Let the gradients of `slots` wait, which are ARMED now."""
        self._slots.clear()
        self._dropped.clear()
        made = [slot for slot in slots if slot.had_gradient]
        elsewhere = seen_elsewhere(made)
        for slot in made:
            assert slot.sent is not None
            self._slots.setdefault(id(slot.sent), []).append(slot)
            let_wait(slot.sent, self)
        if elsewhere:
            self._apply(elsewhere)

    # -- uses ----------------------------------------------------------------------------------

    def use(self, params: List[torch.Tensor]) -> None:
        """See `User`."""
        with self._lock:
            self._apply([slot for grad in params for slot in self._waiting(grad)])

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """See `User`: the engine keeps what it sends, and the gradient gets other memory."""
        with self._lock, torch.inference_mode(False), torch.no_grad():
            for grad in params:
                slots = self._waiting(grad)
                end_wait(grad)
                for slot in slots:
                    slot.sent = grad.detach()
                if slots:
                    grad.data = torch.empty_like(grad)

    def see_gradient(self, param: torch.Tensor, *, replaced: bool) -> None:
        """See `User`: a gradient has no gradient."""

    def used(self, params: List[torch.Tensor], use: Optional[Use]) -> None:
        """See `User`."""

    def _waiting(self, grad: torch.Tensor) -> List[Slot]:
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
                self._slots[id(slot.sent)] = [slot]
                let_wait(slot.sent, self)

    def drop(self, slots: List[Slot]) -> None:
        """Take note that a script wants no gradient of `slots`."""
        for slot in slots:
            if slot.state == ARMED and not slot.had_gradient:
                self.see(slot, replaced=True)

    # -- updates -------------------------------------------------------------------------------

    def arrive(self, slot: Slot, mean: torch.Tensor, grad: Optional[torch.Tensor]) -> bool:
        """Let `grad`, in `p.grad`, be the mean for the update; return whether it stays then.

        It does not where a script has dropped it, or has put another one in its place.  The
        gradients of bundles are their means before.
        """
        param = slot.param
        if slot.sent is None:
            stays = grad is None and slot.index not in self._dropped
            param.grad = kept_mean(slot, mean)
            return stays
        if grad is slot.sent:
            if slot.bundle is None:
                become_mean(slot, grad, mean)
            return True
        if slot.bundle is not None:
            param.grad = slot.sent
            return False
        lend_mean(slot, slot.sent, mean)
        param.grad = slot.sent
        return False

    @staticmethod
    def end(slot: Slot, *, stays: bool) -> None:
        """End the wait of a gradient; the update was made."""
        if slot.sent is not None:
            end_wait(slot.sent)
            slot.sent = None
        if stays:
            leave(slot.param)
        else:
            take_back(slot)

"""Updates that wait for their sums: made where a weight is needed first, or all at once."""

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from bytescheduler.torch._crossing.shadow import Shadow
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.slot import ARMED, IDLE, PUSHED, Slot
from bytescheduler.torch._gradients.tally import CROSSES

__all__ = ["Updates"]

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
    """

    def __init__(self, inner: Any, gradients: Gradients, on_gradient: OnGradient) -> None:  # noqa: ANN401
        self._gradients = gradients
        self._on_gradient = on_gradient
        self._shadow = Shadow(inner)
        self.waiting = 0  # slots that are ARMED
        self.applying = False

    def arm(self) -> None:
        """End a step: from here on each update is made when its weight is needed.

        The numbers of the optimizer are those of now, though schedulers change them right after.
        """
        self.flush()
        self._gradients.complete(CROSSES)
        self._shadow.snapshot()
        for slot in self._gradients.slots:
            if slot.state == PUSHED:
                slot.param.grad = None  # it is the engine's until the update
                slot.state = ARMED
                self.waiting += 1

    def flush(self) -> None:
        """Make all updates that wait.  Blocks."""
        if self.waiting:
            self.apply([slot for slot in self._gradients.slots if slot.state == ARMED])

    def apply(self, slots: Sequence[Slot]) -> None:
        """Update those of `slots` that are ARMED, in one step of the optimizer.  Blocks.

        If a wait is interrupted, nothing has changed.
        """
        armed = [slot for slot in slots if slot.state == ARMED]
        if not armed:
            return
        self._gradients.wait(armed)
        self.applying = True
        try:
            with torch.inference_mode(False), torch.no_grad():
                self._update(armed)
        finally:
            self.applying = False

    def _update(self, armed: List[Slot]) -> None:
        params: Dict[int, List[torch.nn.Parameter]] = {}
        kept = []
        for slot in armed:
            used = self._gradients.is_used(slot)
            mean = self._gradients.receive(slot)
            slot.state = IDLE
            self.waiting -= 1
            if not used:
                continue  # no worker has a gradient, so the plain optimizer passes it over
            param = slot.param
            if param.grad is not None:
                kept.append((param, param.grad))
            param.grad = mean
            if self._on_gradient is not None:
                self._on_gradient(param)
            params.setdefault(slot.group, []).append(param)
        if params:
            self._shadow.step(params)
        for these in params.values():
            for param in these:
                param.grad = None
        for param, grad in kept:
            param.grad = grad

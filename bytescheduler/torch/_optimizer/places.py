"""The parameter groups of an optimizer, and the changes that scripts make to them."""

from typing import Any, Callable, Dict, Iterable, List, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["Places"]

_Lists = List[Tuple[List[torch.nn.Parameter], int]]


class Places:
    """Knows which group each parameter is in, and which parameters have no part in sums.

    Parameters
    ----------
    inner : Optimizer
        Its groups may change at any time.
    """

    def __init__(self, inner: Any) -> None:  # noqa: ANN401
        self._inner = inner
        self._lists: _Lists = []
        self._left_out: List[torch.nn.Parameter] = []

    def have_changed(self) -> bool:
        """Return whether groups, or parameters in them, came or went since `take`."""
        now, taken = self._now(), self._lists
        if len(now) != len(taken):
            return True
        return any(a is not b or n != m for (a, n), (b, m) in zip(now, taken))

    def _now(self) -> _Lists:
        return [(group["params"], len(group["params"])) for group in self._inner.param_groups]

    def take(self, slots: Iterable[Slot]) -> None:
        """Tell each slot its group.

        Raises
        ------
        UsageError
            A parameter was added, or taken away, behind the back of this package.
        """
        place = {
            id(param): at
            for at, group in enumerate(self._inner.param_groups)
            for param in group["params"]
        }
        slots = list(slots)
        for slot in slots:
            if id(slot.param) not in place:
                raise UsageError(
                    f"{slot.name}: it was taken out of the optimizer's groups; leave it there and "
                    "freeze it by requires_grad_(False), or wrap a new optimizer",
                    5,
                )
            slot.group = place[id(slot.param)]
        slot_ids = {id(slot.param) for slot in slots}
        params = [param for group in self._inner.param_groups for param in group["params"]]
        self._left_out = [param for param in params if id(param) not in slot_ids]
        self._lists = self._now()

    def check_left_out(self, names: Callable[[List[torch.nn.Parameter]], Dict[int, str]]) -> None:
        """Raise UsageError if a parameter that has no part in sums has a gradient."""
        for param in self._left_out:
            if param.requires_grad and param.grad is not None and param.numel():
                name = names([param])[id(param)]
                raise UsageError(
                    f"{name}: it has a gradient, and was frozen or absent when the optimizer was "
                    "wrapped, so nothing sends that to other workers; call optimizer.refresh() on "
                    "all workers before backward",
                    5,
                )

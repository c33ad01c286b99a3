"""Parameters that cannot wait: they share memory, or nothing sees their uses."""

from typing import Dict, List, Optional, Sequence, Tuple

import torch

from bytescheduler.torch._crossing.waiting import can_wait
from bytescheduler.torch._gradients.slot import Slot, touch

__all__ = ["why_joint", "why_unseen"]


def why_joint(slots: Sequence[Slot]) -> Optional[str]:
    """Return why the weights of `slots` cannot be updated separately, or None.

    Two may overlap.  Parts of the same tensor may also count their changes together: then backward
    takes an update of a part for a change of another part, which forward has used.
    """
    storages: Dict[Tuple[torch.device, int], List[Slot]] = {}
    for slot in slots:
        memory = slot.param.device, slot.param.untyped_storage().data_ptr()
        storages.setdefault(memory, []).append(slot)
    for together in storages.values():
        joint = _overlapping(together) or _counting_together(together)
        if joint is not None:
            return f"{joint[0].name} and {joint[1].name} are parts of one tensor"
    return None


def why_unseen(slots: Sequence[Slot]) -> Optional[str]:
    """Return why nothing sees the first use of one of `slots`, or None."""
    for slot in slots:
        if not can_wait(slot.param):
            return f"{slot.name} has the class {type(slot.param).__name__}, which hides its uses"
    return None


def _span(slot: Slot) -> Tuple[int, int]:
    """Return where in its memory a parameter begins and ends."""
    param = slot.param
    last = sum((size - 1) * stride for size, stride in zip(param.shape, param.stride()))
    return param.storage_offset(), param.storage_offset() + last + 1


def _overlapping(slots: List[Slot]) -> Optional[Tuple[Slot, Slot]]:
    spans = sorted((*_span(slot), slot.index, slot) for slot in slots)
    for (_, end, _, earlier), (begin, _, _, later) in zip(spans, spans[1:]):
        if begin < end:
            return earlier, later
    return None


def _counting_together(slots: List[Slot]) -> Optional[Tuple[Slot, Slot]]:
    for at, slot in enumerate(slots[:-1]):
        rest = slots[at + 1 :]
        before = [neighbour.param._version for neighbour in rest]
        touch(slot.param)
        for neighbour, version in zip(rest, before):
            if neighbour.param._version != version:
                return slot, neighbour
    return None

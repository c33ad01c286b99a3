"""Buffers of a module on all workers: they become worker 0's, as long as they are alike."""

from typing import Any, List, NoReturn, Optional, Sequence, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._sums.objects import TensorObjects

__all__ = ["Buffers"]

_ROOT = 0
# A module without buffers may make some in its first passes; after these no message asks.
_FIRST_PASSES = 3

_Named = Sequence[Tuple[str, torch.Tensor]]
_Kinds = List[Tuple[str, torch.dtype, torch.Size]]


class Buffers:
    """Overwrites buffers with worker 0's, and finds a buffer that is not alike.

    Each message has the sizes that all workers agreed on, and tells whether worker 0 has other
    buffers since.  So no worker takes bytes of other buffers, or waits for a message of another
    size.

    Parameters
    ----------
    objects : TensorObjects
        Carries them.
    session : TorchSession
        Fails the job on all workers, if their buffers differ.
    named : sequence of pairs
        The buffers, which are alike on all workers now.
    """

    def __init__(self, objects: TensorObjects, session: TorchSession, named: _Named) -> None:
        self._objects = objects
        self._session = session
        self._agreed = _kinds_of(named)
        self._passes = 0

    def overwrite(self, named: _Named) -> None:
        """Let buffers be worker 0's; all workers call it.  Blocks.

        Raises
        ------
        UsageError
            A buffer has another dtype or shape than on worker 0, or only one of the two has it.
        """
        kinds = _kinds_of(named)
        self._passes += 1
        if not self._agreed and self._passes > _FIRST_PASSES:
            if kinds:
                self._give_up(
                    f"buffer {kinds[0][0]}: it came after {_FIRST_PASSES} passes of a module "
                    "without buffers; register it before the module is wrapped"
                )
            return
        changed = kinds != self._agreed
        flag = torch.tensor([changed], dtype=torch.uint8)  # worker 0's counts
        values = [value for _, value in named]
        if changed:
            values = [torch.empty(shape, dtype=dtype) for _, dtype, shape in self._agreed]
        self._objects.overwrite([flag, *values], _ROOT)
        if int(flag):
            self._compare(kinds, self._objects.broadcast(kinds, _ROOT))
            self._agreed = kinds
            self._objects.overwrite([value for _, value in named], _ROOT)
        elif changed:
            self._compare(kinds, self._agreed)

    def _compare(self, ours: _Kinds, theirs: Any) -> None:  # noqa: ANN401
        """Name the first buffer that differs, and fail the job on all workers."""
        if ours == theirs:
            return
        here = {name: (dtype, shape) for name, dtype, shape in ours}
        there = {name: (dtype, shape) for name, dtype, shape in theirs}
        differing = [name for name in [*here, *there] if here.get(name) != there.get(name)]
        if not differing:
            self._give_up(f"buffer {ours[0][0]}: on worker {_ROOT} buffers have another order")
        name = differing[0]
        self._give_up(
            f"buffer {name}: it is {_text(here.get(name))} here and {_text(there.get(name))} on "
            f"worker {_ROOT}"
        )

    def _give_up(self, fault: str) -> NoReturn:
        reason = (
            f"{fault}; let all workers have the same buffers, or pass broadcast_buffers=False to "
            "DistributedDataParallel"
        )
        self._session.give_up(reason)
        raise UsageError(reason, 5)


def _kinds_of(named: _Named) -> _Kinds:
    return [(name, value.dtype, value.shape) for name, value in named]


def _text(kind: Optional[Tuple[torch.dtype, torch.Size]]) -> str:
    return "absent" if kind is None else f"{kind[0]} of shape {tuple(kind[1])}"

"""A bundle: small parameters that are neighbours, whose gradients travel as one round."""

from typing import (
    Dict,
    Generic,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

import torch

from bytescheduler.torch._engine.dtypes import size_of
from bytescheduler.torch._gradients.memory import are_alone, tensors_on
from bytescheduler.torch._sums.compression import Compressor, is_elementwise
from bytescheduler.torch._sums.passage import Passage

__all__ = ["Bundle", "bundled", "copy_all"]

SMALL_BYTES = 8 << 10  # a larger gradient costs more to copy than a round of its own
# The bytes of a bundle, as its most urgent member waits for all of them on a slow link.
_BUNDLE_BYTES = 64 << 10
_SPAN_BYTES = 128 << 10  # from the first member to the last, with larger parameters between them
# Each member begins where PyTorch would begin a tensor, so that vectorised code meets the same.
_ALIGNED_BYTES = 64


class Member(Protocol):
    """A slot."""

    name: str
    param: torch.nn.Parameter
    elements: int
    stride: Tuple[int, ...]
    priority: int
    had_gradient: bool
    sent: Optional[torch.Tensor]
    recv: Optional[torch.Tensor]


_Slot = TypeVar("_Slot", bound=Member)


class _Memory(NamedTuple):
    """One tensor of all members, and a part of it for each."""

    whole: torch.Tensor
    parts: List[torch.Tensor]


class Bundle(Generic[_Slot]):
    """The memory and the round of several slots of one dtype, in the processor's memory.

    Its members are sent together, and all have their means at the same time.

    Parameters
    ----------
    slots : list of Slot
        At least two.
    compression : Compressor
        Changes each element by itself.
    """

    def __init__(self, slots: List[_Slot], compression: Type[Compressor]) -> None:
        self.slots = slots
        self.key = 0
        self.elements = sum(slot.elements for slot in slots)
        self.awaited = len(slots)  # members whose gradient has not come in this round
        self.has_all = False  # each member has a gradient in the latest round
        self.passage = Passage(compression, None)
        self._compression = compression
        self._sent: Optional[_Memory] = None
        self._received: Optional[torch.Tensor] = None
        self._tensors = 0  # that have its memory
        self._has_means = False  # the latest round is decoded

    @property
    def name(self) -> str:
        """The name in timelines."""
        return f"bundle of {self.slots[0].name}"

    @property
    def had_gradient(self) -> bool:
        """True if a member has a gradient in the latest round."""
        return any(slot.had_gradient for slot in self.slots)

    @property
    def priority(self) -> int:
        """The priority of the most urgent member."""
        return max([slot.priority for slot in self.slots])

    def make_memory(self) -> torch.Tensor:
        """Make memory for the next rounds; return what the engine writes to, which is zero."""
        self._sent = self._memory()
        self._make_received()
        narrow = self.passage.compress(self._sent.whole)
        if narrow is self._sent.whole:
            self.passage.received = self._received
        else:
            self.passage.make_room(narrow).zero_()
        assert self.passage.received is not None
        return self.passage.received

    def _make_received(self) -> None:
        self._received, means = self._memory()
        for slot, mean in zip(self.slots, means):
            slot.recv = mean
        self._tensors = tensors_on(self._received)

    def renew(self) -> None:
        """Leave the memory of means to an optimizer, or a function, that keeps one of them.

        After an update, when no `p.grad` is a mean.
        """
        before = self._received
        if before is None:
            return
        is_kept = tensors_on(before) != self._tensors
        if is_kept or not all(are_alone([slot.recv for slot in self.slots], 1)):
            self._make_received()
            if self.passage.received is before:
                self.passage.received = self._received

    def _memory(self) -> _Memory:
        first = self.slots[0].param
        step = max(1, _ALIGNED_BYTES // first.element_size())
        starts, end = [], 0
        for slot in self.slots:
            starts.append(end)
            end += -(-slot.elements // step) * step
        whole = torch.zeros(end, dtype=first.dtype, device="cpu")
        memory = whole.untyped_storage()
        # Tensors rather than views, which would count their changes together.
        parts = [
            torch.empty(0, dtype=first.dtype, device="cpu").set_(
                memory, start, slot.param.shape, slot.stride
            )
            for slot, start in zip(self.slots, starts)
        ]
        return _Memory(whole, parts)

    def drop_memory(self) -> None:
        """Leave all memory to a round that nothing wants, and which still uses it."""
        if self._sent is not None:
            self._sent = self._received = None
            self.passage = Passage(self._compression, None)

    def gather(self, sent: Sequence[Optional[torch.Tensor]]) -> torch.Tensor:
        """Return what all members send, in the form in which it travels.

        A member that sends None has zeros.
        """
        if self._sent is None:
            self.make_memory()
        assert self._sent is not None
        self.awaited = len(self.slots)
        self._has_means = False
        gradients = [gradient for gradient in sent if gradient is not None]
        self.has_all = all(slot.sent is not None for slot in self.slots)
        with torch.no_grad():
            if len(gradients) == len(self.slots):
                copy_all(self._sent.parts, gradients)
            else:
                self._sent.whole.zero_()
                pairs = zip(self._sent.parts, sent)
                copy_all([part for part, gradient in pairs if gradient is not None], gradients)
            return self.passage.compress(self._sent.whole)

    def decode(self) -> None:
        """Let `recv` of each member be its mean, in a round that is over."""
        if self._has_means:
            return
        assert self._received is not None
        result = self.passage.result()
        if result is not self._received:
            self._received.copy_(result)
        self._has_means = True


def copy_all(targets: List[torch.Tensor], sources: List[torch.Tensor]) -> None:
    """Copy each of `sources` into its target."""
    together = getattr(torch, "_foreach_copy_", None)  # not in the oldest versions
    if together is None:
        for target, source in zip(targets, sources):
            target.copy_(source)
    elif targets:
        together(targets, sources)


class _Run(Generic[_Slot]):
    """Slots that may become a bundle.

    Parameters
    ----------
    begin_bytes : int
        The bytes of all parameters before the first.
    """

    def __init__(self, begin_bytes: int) -> None:
        self.slots: List[_Slot] = []
        self._begin_bytes = begin_bytes
        self._bytes = 0

    def has_room(self, size: int, end_bytes: int) -> bool:
        """Return whether a slot of `size` bytes fits, which ends at `end_bytes`."""
        is_near = end_bytes - self._begin_bytes <= _SPAN_BYTES
        return is_near and self._bytes + size <= _BUNDLE_BYTES

    def add(self, slot: _Slot, size: int) -> None:
        """Take a slot that fits."""
        self.slots.append(slot)
        self._bytes += size


def bundled(slots: Iterable[_Slot], compression: Type[Compressor]) -> List[Bundle[_Slot]]:
    """Return the bundles of new slots, which come in the same order on every worker.

    All are in the processor's memory.  A slot that is large, or has no neighbour of its dtype, is
    in no bundle.
    """
    if not is_elementwise(compression):
        return []
    runs: List[_Run[_Slot]] = []
    latest: Dict[torch.dtype, _Run[_Slot]] = {}
    end_bytes = 0
    for slot in slots:
        size = size_of(slot.param)
        end_bytes += size
        if size > SMALL_BYTES:
            continue
        dtype = slot.param.dtype
        if dtype not in latest or not latest[dtype].has_room(size, end_bytes):
            latest[dtype] = _Run(end_bytes - size)
            runs.append(latest[dtype])
        latest[dtype].add(slot, size)
    return [Bundle(run.slots, compression) for run in runs if len(run.slots) > 1]

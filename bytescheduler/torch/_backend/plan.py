"""A call of a collective: its exchanges, and its last steps on this rank."""

from typing import Callable, Hashable, List, Optional, Protocol, Sequence, Tuple

import torch

from bytescheduler._session.groups.members import Members, Slot
from bytescheduler._session.rounds import SUM, Exchange
from bytescheduler.torch._backend.devices.passage import Passage
from bytescheduler.torch._backend.devices.staging import Stagings
from bytescheduler.torch._backend.labels import label_of, tensors_text
from bytescheduler.torch._backend.memory import (
    Extent,
    Extents,
    Landing,
    check_tensors,
    extent_of,
    is_in_place,
    landing,
    sent,
)
from bytescheduler.torch._engine.dtypes import BYTES

__all__ = ["MEETING", "Plan", "Range", "shards"]

# The exchange of a call in which all ranks give and take, so that all learn of a difference.
MEETING: Slot = ()
# A tensor of this size or less travels in one exchange instead of a shard a rank.
_SMALL_BYTES = 16 << 10
_ALIGNED = 64  # elements
Range = Tuple[int, int]


class _Call(Protocol):
    """A call under way, such as `Work`."""

    def poll(self) -> bool:
        """Return whether it has ended."""

    def on_end(self, call: Callable[[], object]) -> None:
        """Let `call` be called once it has ended."""

    def hurry(self) -> None:
        """Send it before all calls for which no thread waits."""


def shards(numel: int, size: int, element_bytes: int, turn: int) -> List[Tuple[int, Range]]:
    """Return the owners of a tensor's elements, each with its first element and its end.

    Parameters
    ----------
    numel : int
        Elements.
    size : int
        Ranks.
    element_bytes : int
        Bytes of an element.
    turn : int
        The owner of a small tensor.
    """
    if numel * element_bytes <= _SMALL_BYTES:
        return [(turn, (0, numel))] if numel else []
    length = -(-numel // (size * _ALIGNED)) * _ALIGNED
    bounds = ((at * length, min((at + 1) * length, numel)) for at in range(size))
    return [(owner, bound) for owner, bound in enumerate(bounds) if bound[0] < bound[1]]


class Plan:
    """The exchanges of one call on this rank.

    Parameters
    ----------
    members : Members
        The group.
    number : int
        The call's number in the group.
    kind : str
        Its name.
    passage : Passage, optional
        The way of tensors on devices; None: the call has none.

    Attributes
    ----------
    exchanges : list of Exchange
        Those in which this rank gives or takes.
    owner : list of Tensor
        The memory that exchanges use.
    results : list of Tensor
        The tensors of the call's future.
    label : str
        The call, with number and group.
    earlier : list
        Calls that end before this call does.
    is_message : bool
        A single rank sends, and a single rank receives.
    only_receives : bool
        It is a message to this rank.
    """

    def __init__(
        self, members: Members, number: int, kind: str, passage: Optional[Passage] = None
    ) -> None:
        self.members = members
        self.number = number
        self.kind = kind
        self.passage = Passage(Stagings()) if passage is None else passage
        self.results: List[torch.Tensor] = []
        self.exchanges: List[Exchange] = []
        self.owner: List[torch.Tensor] = []
        self.title = f"{kind} #{number} of {members.name}"
        self.label = self.title
        self.earlier: List[_Call] = []
        self.is_message = False
        self.only_receives = False
        self._has_met = False
        self._written: List[Extent] = []
        self._landed = Extents()
        self._copies: List[Tuple[torch.Tensor, torch.Tensor]] = []
        self._steps: List[Callable[[], None]] = []

    def state(
        self,
        tensors: Sequence[torch.Tensor] = (),
        results: Sequence[torch.Tensor] = (),
        *,
        text: str = "",
        written: Sequence[torch.Tensor] = (),
    ) -> None:
        """Complete the label, before exchanges are added.

        Parameters
        ----------
        tensors : sequence of Tensor
            Their dtypes and shapes are alike on all ranks.
        results : sequence of Tensor
            They hold the result.
        text : str
            Further arguments that are alike on all ranks.
        written : sequence of Tensor
            They are overwritten while the call's other tensors are sent.

        Raises
        ------
        ValueError
            A tensor is not dense, or they are not all on the CPU, or all on one device.
        """
        self._check([*tensors, *results])
        self.label = label_of([self.title, text, tensors_text(tensors)])
        self.results = list(results)
        self._written = [extent_of(tensor) for tensor in written]

    @property
    def likeness(self) -> Hashable:
        """A value that is equal for calls of a group that send and receive alike."""
        return self.members.identity, self.kind, tuple(call.size for call in self.exchanges)

    @property
    def turn(self) -> int:
        """The rank that keeps what no rank owns; each in turn."""
        return self.number % self.members.size

    def send(self, tensor: torch.Tensor, in_place: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return the memory of a tensor that exchanges read.

        It is a copy where the call writes there too.  `in_place` may lie exactly there: the call
        does not write it, or in the same exchange.
        """
        self._check([tensor])
        memory = self.passage.send(self._unwritten(sent(tensor), in_place))
        self.owner.append(memory)
        return memory

    def _check(self, tensors: Sequence[torch.Tensor]) -> None:
        check_tensors(tensors)
        self.passage.check(tensors)

    def room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return flat memory of the CPU for values like those of a tensor of the call."""
        return self.passage.room(tensor)

    def land(self, tensor: torch.Tensor, *, with_values: bool = False) -> Landing:
        """Return memory that exchanges write; the tensor gets the values at the end.

        Tensors that overlap get one after the other.  With `with_values` the memory begins with
        those of the tensor.
        """
        check_tensors([tensor])
        room = self.passage.land(tensor, with_values=with_values)
        if room is not None:
            self.owner.append(room)
            self.then(lambda: self.passage.upload(room, tensor.detach()))
            return Landing(room, tensor)
        place = landing(tensor, apart=False)
        if place.target is None and not self._landed.add(extent_of(place.memory)):
            place = landing(tensor, apart=True)
        if with_values and place.target is not None:
            place.memory.copy_(tensor.detach().reshape(-1))
        self.owner.append(place.memory)
        self.then(place.finish)
        return place

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy a rank's own part, before any exchange starts; nothing if it is in place."""
        if is_in_place(target, source):
            return
        self._copies.append((target.detach(), self._unwritten(source.detach())))

    def _unwritten(
        self, memory: torch.Tensor, in_place: Optional[torch.Tensor] = None
    ) -> torch.Tensor:
        """Return a copy of memory that the call writes, but for all of `in_place`."""
        begin, end = extent = extent_of(memory)
        same = in_place is not None and is_in_place(in_place, memory)
        for written in self._written:
            if begin < written[1] and written[0] < end and not (same and written == extent):
                return memory.clone()
        return memory

    def then(self, step: Callable[[], None]) -> None:
        """Add a step for the end of all exchanges."""
        self._steps.append(step)

    def finish(self) -> None:
        """Make the last steps.  Any thread, once."""
        with torch.inference_mode():  # else tensors of that mode refuse a copy
            for step in self._steps:
                step()

    def release(self) -> None:
        """Drop the steps, which refer to this and to tensors; `owner` stays as the engine's."""
        self._steps = []
        self.earlier = []

    def add(
        self,
        slot: Slot,
        givers: Tuple[int, ...],
        takers: Tuple[int, ...],
        *,
        home: int,
        label: str = "",
        size: int = 0,
        numbers: Tuple[int, int] = (BYTES, SUM),
        send: int = 0,
        receive: int = 0,
    ) -> None:
        """Add an exchange of ranks of the group; nothing where this rank has no part in it."""
        rank, members = self.members.rank, self.members
        gives, takes = rank in givers, rank in takers
        if not (gives or takes):
            return
        self.exchanges.append(
            Exchange(
                key=members.key(self.number, slot),
                givers=members.on_job(givers),
                takers=members.on_job(takers),
                label=label or self.label,
                home=members.ranks[home],
                size=size,
                dtype=numbers[0],
                op=numbers[1],
                send=send if gives else 0,
                receive=receive if takes else 0,
            )
        )

    def slot(self, part: int, owner: int) -> Slot:
        """Return the slot of a shard in which all ranks give and take; the first is the meeting."""
        if self._has_met or owner != self.turn:
            return (part, owner)
        self._has_met = True
        return MEETING

    def complete(self) -> None:
        """Make the rank's own copies, and let all ranks compare their calls."""
        for target, source in self._copies:
            self.passage.copy(target, source.reshape(target.shape))
        self._copies = []
        if not self._has_met and self.members.size > 1:
            self._has_met = True
            self.add(MEETING, self.members.all, self.members.all, home=self.turn)

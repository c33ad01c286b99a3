"""A call of a collective: its exchanges, and its last steps on this rank."""

from typing import Callable, List, Protocol, Sequence, Tuple

import torch

from bytescheduler._session.rounds import SUM, Exchange
from bytescheduler.torch._backend.labels import label_of
from bytescheduler.torch._backend.members import Members, Slot
from bytescheduler.torch._backend.memory import Landing, check_tensors, landing, sent
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
    parts : sequence of str
        The call in words, alike on all ranks.
    results : sequence of Tensor
        The tensors of the call's future.

    Attributes
    ----------
    exchanges : list of Exchange
        Those in which this rank gives or takes.
    owner : list of Tensor
        The memory that exchanges use.
    label : str
        The call, with number and group.
    earlier : list
        Calls that end before this call does.
    """

    def __init__(
        self, members: Members, number: int, parts: Sequence[str], results: Sequence[torch.Tensor]
    ) -> None:
        self.members = members
        self.number = number
        self.results = list(results)
        self.exchanges: List[Exchange] = []
        self.owner: List[torch.Tensor] = []
        self.title = f"{parts[0]} #{number} of {members.name}"
        self.label = label_of([self.title, *parts[1:]])
        self.earlier: List[_Call] = []
        self._has_met = False
        self._steps: List[Callable[[], None]] = []

    @property
    def turn(self) -> int:
        """The rank that keeps what no rank owns; each in turn."""
        return self.number % self.members.size

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the memory of a tensor that exchanges read."""
        check_tensors([tensor])
        memory = sent(tensor)
        self.owner.append(memory)
        return memory

    def land(self, tensor: torch.Tensor) -> Landing:
        """Return memory that exchanges write; the tensor gets the values at the end."""
        check_tensors([tensor])
        place = landing(tensor)
        self.owner.append(place.memory)
        self.then(place.finish)
        return place

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

    def meet(self) -> None:
        """Let all ranks compare their calls, unless an exchange does so."""
        if not self._has_met and self.members.size > 1:
            self._has_met = True
            self.add(MEETING, self.members.all, self.members.all, home=self.turn)

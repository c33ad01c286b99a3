"""The ranks of a process group, and the keys of their exchanges."""

import hashlib
from typing import NamedTuple, Tuple

__all__ = ["Members", "Slot"]

# An exchange among all those of a call.
Slot = Tuple[int, ...]


class Members(NamedTuple):
    """A process group as one of its ranks sees it.

    Parameters
    ----------
    name : str
        What messages call the group.
    identity : str
        A text that no other group of the job has, alike on all ranks.
    ranks : tuple of int
        The workers of the job, by rank in the group.
    rank : int
        The rank of this process in the group.
    """

    name: str
    identity: str
    ranks: Tuple[int, ...]
    rank: int

    @property
    def size(self) -> int:
        """How many ranks the group has."""
        return len(self.ranks)

    @property
    def all(self) -> Tuple[int, ...]:
        """All ranks of the group."""
        return tuple(range(self.size))

    def without(self, rank: int) -> Tuple[int, ...]:
        """Return all ranks of the group but one."""
        return tuple(member for member in self.all if member != rank)

    def on_job(self, ranks: Tuple[int, ...]) -> Tuple[int, ...]:
        """Return the workers of the job that have these ranks in the group."""
        return tuple(self.ranks[rank] for rank in ranks)

    def key(self, number: int, slot: Slot) -> int:
        """Return the key of an exchange.

        It is the same for all calls of a number: where ranks make different calls, their exchanges
        meet, and the engine compares the labels.
        """
        text = f"{self.identity}|{number}|{slot}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

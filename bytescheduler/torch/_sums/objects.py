"""Whole sets of tensors, from a worker to all."""

import hashlib
from typing import Iterator, List, Optional, Sequence, Tuple

import torch

from bytescheduler._session.objects import Objects
from bytescheduler._session.relay import Relay
from bytescheduler._session.view import HasView
from bytescheduler.torch._engine.dtypes import size_of
from bytescheduler.torch._sums.octets import (
    DIGEST_BYTES,
    digest_of,
    has_octets,
    memory_of,
    octets_of,
)
from bytescheduler.torch._sums.tensor_sums import Call, TensorSums

__all__ = ["TensorObjects"]

_TOGETHER_BYTES = 4 << 20
_FEWEST_FLAGS = 64


class TensorObjects(Objects):
    """Carries tensors too.

    Parameters
    ----------
    relay : Relay, optional
        Carries the bytes; None where this worker is alone.
    job : HasView
        The job of the workers.
    sums : TensorSums, optional
        Tell which tensors differ, so that only these travel; None: all travel.
    """

    def __init__(
        self, relay: Optional[Relay], job: HasView, sums: Optional[TensorSums] = None
    ) -> None:
        super().__init__(relay, job)
        self._sums = sums

    def gather_unequal(self, value: object) -> List[object]:
        """Return every worker's `value`, by rank; no values if all workers have equal ones.

        Blocks until all workers call it.  Equal values are those with the same `repr`.
        """
        if self._relay is None:
            return []
        digest = hashlib.blake2b(repr(value).encode(), digest_size=4).digest()
        halves = [int.from_bytes(digest[:2], "little"), int.from_bytes(digest[2:], "little")]
        total = self._sum(halves, "a digest of all workers")
        if total == [self._job.view.num_workers * half for half in halves]:
            return []
        return self.gather(value)

    def _sum(self, numbers: List[int], name: str) -> List[int]:
        assert self._sums is not None
        vector = torch.tensor(numbers, dtype=torch.int32, device="cpu")
        call = Call(average=False, name=f"{name}, {len(numbers)}", bookkeeping=True)
        return [int(n) for n in self._sums.finish(self._sums.start(vector, call)).tolist()]

    def broadcast_tensors(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        """Overwrite tensors with the tensors of worker `root`, bit for bit.  Blocks.

        Only tensors that differ on some worker travel, and change here.

        Raises
        ------
        ConfigError
            Names, dtypes or shapes differ from worker `root`.
        """
        self.check_root(root)
        if self._relay is None:
            return
        self.check_alike(tensors, root)
        values = [tensor for _, tensor in tensors]
        self.overwrite(self._differing(values, root), root)

    def _differing(self, tensors: List[torch.Tensor], root: int) -> List[torch.Tensor]:
        """Return the tensors of which some worker has other bytes than worker `root`.  Blocks."""
        if self._relay is None or self._sums is None or not tensors:
            return tensors
        digests = b"".join(digest_of(tensor) for tensor in tensors)
        theirs = bytearray(digests)
        self._relay.broadcast(memoryview(theirs), root)
        flags = [
            int(digests[at : at + DIGEST_BYTES] != theirs[at : at + DIGEST_BYTES])
            for at in range(0, len(digests), DIGEST_BYTES)
        ]
        flags = [flag if has_octets(tensor) else 1 for flag, tensor in zip(flags, tensors)]
        room = _FEWEST_FLAGS
        while room < len(flags):
            room *= 2  # few sizes, so few keys
        counts = self._sum(flags + [0] * (room - len(flags)), "workers whose tensors differ")
        return [tensor for tensor, count in zip(tensors, counts) if count]

    def check_alike(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        """Raise ConfigError if worker `root` has other names, dtypes or shapes.  Blocks."""
        kinds = [(name, (str(tensor.dtype), tuple(tensor.shape))) for name, tensor in tensors]
        self.check_same(kinds, root)

    def overwrite(self, tensors: Sequence[torch.Tensor], root: int) -> None:
        """Do as `broadcast_tensors` with tensors that are known to have equal dtypes and shapes."""
        if self._relay is None:
            return
        with torch.no_grad():
            for group in _groups(tensors):
                octets = torch.cat([octets_of(tensor) for tensor in group])
                self._relay.broadcast(memory_of(octets), root, owner=octets)
                if self._job.view.rank != root:
                    _spread(octets, group)


def _groups(tensors: Sequence[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Put small tensors together, as each message takes its time."""
    group: List[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        if group and size + size_of(tensor) > _TOGETHER_BYTES:
            yield group
            group, size = [], 0
        group.append(tensor)
        size += size_of(tensor)
    if group:
        yield group


def _spread(octets: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    for tensor, part in zip(tensors, octets.split([size_of(target) for target in tensors])):
        # A copy, as a view of another dtype wants memory that is aligned for it.
        tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))

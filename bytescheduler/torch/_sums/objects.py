"""Python objects and whole sets of tensors, from one worker to all."""

import ctypes
import pickle
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.torch._engine.dtypes import size_of
from bytescheduler.torch._sums.relay import Relay

__all__ = ["Objects"]

_COUNT_BYTES = 8
_NO_OBJECT = 2**63  # a count that no object has
_TOGETHER_BYTES = 4 << 20


def octets_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes as a vector of uint8 of the CPU; it shares memory where it can."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8).cpu()


def _count(octets: torch.Tensor) -> int:
    return int.from_bytes(_bytes(octets), "little")


def _bytes(octets: torch.Tensor) -> bytes:
    return ctypes.string_at(octets.data_ptr(), octets.numel())  # PyTorch may be without numpy


def _vector(data: bytes) -> torch.Tensor:
    if not data:
        return _empty(0)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cpu")  # whatever the default is


class Objects:
    """Carries objects between the workers of this job, which trust each other's pickles.

    Parameters
    ----------
    relay : Relay, optional
        Carries the bytes; None where this worker is alone.
    rank, size : int
        This worker's, and how many there are.
    """

    def __init__(self, relay: Optional[Relay], rank: int, size: int) -> None:
        self._relay = relay
        self._rank = rank
        self._size = size

    def check_root(self, root: int) -> None:
        """Raise ConfigError if there is no worker `root`."""
        if not isinstance(root, int) or not 0 <= root < self._size:
            raise ConfigError(f"root_rank {root!r}: want 0 to {self._size - 1}", 1)

    def broadcast(self, value: object, root: int) -> object:
        """Return worker `root`'s `value`.  Blocks."""
        self.check_root(root)
        if self._relay is None:
            return value
        mine, error = b"", None
        if self._rank == root:
            try:
                mine = pickle.dumps(value)
            except Exception as failed:  # noqa: B902 - any object's own
                error = failed
        size = _NO_OBJECT if error is not None else len(mine)
        count = _vector(size.to_bytes(_COUNT_BYTES, "little"))
        self._relay.broadcast(count, root)
        if error is not None:
            raise error
        if _count(count) == _NO_OBJECT:
            raise UsageError(
                f"worker {root} could not pickle its object, and says why; give an object that "
                "pickle takes",
                5,
            )
        data = _vector(mine) if self._rank == root else _empty(_count(count))
        self._relay.broadcast(data, root)
        return value if self._rank == root else pickle.loads(_bytes(data))

    def gather(self, value: object) -> List[object]:
        """Return every worker's `value`, in the order of their ranks.  Blocks."""
        if self._relay is None:
            return [value]
        return [self.broadcast(value, root) for root in range(self._size)]

    def broadcast_tensors(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        """Overwrite tensors with those of worker `root`, bit for bit.  Blocks.

        Raises
        ------
        ConfigError
            Names, dtypes or shapes differ from those of worker `root`.
        """
        self.check_root(root)
        if self._relay is None:
            return
        self.check_alike(tensors, root)
        self.overwrite([tensor for _, tensor in tensors], root)

    def check_alike(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        """Raise ConfigError if worker `root` has other names, dtypes or shapes.  Blocks."""
        mine = {name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors}
        if len(mine) < len(tensors):
            names = [name for name, _ in tensors]
            again = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{again}: two tensors have this name; give each its own", 5)
        theirs = self.broadcast(mine, root)
        assert isinstance(theirs, dict)
        _check_alike(mine, theirs, root)

    def overwrite(self, tensors: Sequence[torch.Tensor], root: int) -> None:
        """Do as `broadcast_tensors` with tensors whose dtypes and shapes are known to be alike."""
        if self._relay is None:
            return
        with torch.no_grad():
            for group in _groups(tensors):
                octets = torch.cat([octets_of(tensor) for tensor in group])
                self._relay.broadcast(octets, root)
                if self._rank != root:
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
    for tensor, part in zip(tensors, octets.split([size_of(each) for each in tensors])):
        # A copy, as a view of another dtype wants memory that is aligned for it.
        tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))


def _check_alike(mine: Mapping[str, object], theirs: Mapping[str, object], root: int) -> None:
    cure = "build the same model on every worker, and broadcast all of it"
    for name in [*theirs, *mine]:
        if name not in mine or name not in theirs:
            where = "here" if name not in mine else f"on worker {root}"
            raise ConfigError(f"{name}: there is no such tensor {where}; {cure}", 1)
        if mine[name] != theirs[name]:
            raise ConfigError(
                f"{name}: it is {mine[name]} here and {theirs[name]} on worker {root}; {cure}", 1
            )
    if list(mine) != list(theirs):
        raise ConfigError(
            f"the tensors come in another order than on worker {root}: sort them by name", 1
        )

"""Whole sets of tensors, from a worker to all."""

import ctypes
from typing import Iterator, List, Sequence, Tuple

import torch

from bytescheduler._session.objects import Objects
from bytescheduler.torch._engine.dtypes import size_of

__all__ = ["TensorObjects", "octets_of"]

_TOGETHER_BYTES = 4 << 20


def octets_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes as a vector of uint8 of the CPU; it shares memory where it can."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8).cpu()


def _memory_of(octets: torch.Tensor) -> memoryview:
    """Return the bytes of a vector of uint8, which must stay alive."""
    memory = (ctypes.c_char * octets.numel()).from_address(octets.data_ptr())
    return memoryview(memory).cast("B")  # PyTorch may be without numpy


class TensorObjects(Objects):
    """Carries tensors too."""

    def broadcast_tensors(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        """Overwrite tensors with the tensors of worker `root`, bit for bit.  Blocks.

        Raises
        ------
        ConfigError
            Names, dtypes or shapes differ from worker `root`.
        """
        self.check_root(root)
        if self._relay is None:
            return
        self.check_alike(tensors, root)
        self.overwrite([tensor for _, tensor in tensors], root)

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
                self._relay.broadcast(_memory_of(octets), root, owner=octets)
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

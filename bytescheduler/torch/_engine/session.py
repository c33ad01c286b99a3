"""A session whose tensors are PyTorch's."""

from typing import Optional, Sequence, Tuple

import torch

from bytescheduler._native import Coding, Pending
from bytescheduler._session.round_session import RoundSession
from bytescheduler._session.rounds import RoundCall
from bytescheduler.errors import UsageError
from bytescheduler.torch._engine.dtypes import code_of, is_floating, size_of

__all__ = ["TorchSession"]


class TorchSession(RoundSession):
    """A `RoundSession` that declares PyTorch's tensors and starts their rounds."""

    framework_name = "torch"

    def check_place(self, tensor: torch.Tensor, name: str, device: Optional[object]) -> None:
        """Raise UsageError, with `name`, if NCCL has to sum `tensor`, which is on no device."""
        if self.sums_on_devices and device is None and is_floating(tensor.dtype):
            setting, way_out = self.nccl_by
            raise UsageError(
                f"{name}: it is on the CPU, and {setting} sums tensors of GPUs; move it to this "
                f"worker's GPU, or set {way_out}",
                5,
            )

    def declare_tensors(
        self, tensors: Sequence[Tuple[int, torch.Tensor]], coding: Optional[Coding] = None
    ) -> None:
        """Declare keys with dense tensors, which get rank 0's bytes.  Blocks.

        `coding` is that of later rounds.
        """
        items = [
            (key, code_of(tensor.dtype), tensor.data_ptr(), size_of(tensor))
            for key, tensor in tensors
        ]
        self.declare(items, owner=tensors, coding=coding)

    def start(self, key: int, send: torch.Tensor, recv: torch.Tensor, call: RoundCall) -> Pending:
        """Begin the next round of `key`; both tensors are dense, apart, and in the CPU's memory.

        Raises
        ------
        UsageError
            One is not in the CPU's memory, which the engine reads and writes.
        """
        if not (send.is_cpu and recv.is_cpu):
            device = recv.device if send.is_cpu else send.device
            fault = f"key {key}: its memory is on {device}; give the engine tensors of the CPU"
            raise self._named(UsageError(fault, 5))
        return self._start_dense(key, send, recv, call)

    def start_on_device(
        self, key: int, send: torch.Tensor, recv: torch.Tensor, call: RoundCall
    ) -> Pending:
        """Do as `start` with tensors that NCCL reads and writes, on a device."""
        return self._start_dense(key, send, recv, call)

    def _start_dense(
        self, key: int, send: torch.Tensor, recv: torch.Tensor, call: RoundCall
    ) -> Pending:
        size = send.numel() * send.element_size()
        owner: Tuple[torch.UntypedStorage, ...] = (send.untyped_storage(), recv.untyped_storage())
        if call.source is not None:
            owner += (call.source.untyped_storage(),)
        return self.start_round(key, send.data_ptr(), recv.data_ptr(), size, call, owner=owner)

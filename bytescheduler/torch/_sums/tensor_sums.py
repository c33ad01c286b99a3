"""Sums of single tensors of PyTorch, on the processor or on a device."""

from typing import List, NamedTuple, Optional, Tuple, Type, cast

import torch

from bytescheduler._native import Pending
from bytescheduler._session.named_sums import NamedSums
from bytescheduler._session.names import check_name
from bytescheduler._session.rounds import SUM, Round, RoundCall
from bytescheduler.errors import UsageError
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._engine.dtypes import check_summable
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._sums.compression import Compression, Compressor
from bytescheduler.torch._sums.named_calls import NamedCalls, SumCall
from bytescheduler.torch._sums.passage import Passage
from bytescheduler.torch._sums.reductions import Reductions

__all__ = ["Call", "TensorSums"]


class Call(NamedTuple):
    """The options of one push-pull."""

    average: bool = True
    name: Optional[str] = None
    priority: int = 0
    compression: Type[Compressor] = Compression.none
    bookkeeping: bool = False  # it is no tensor of the script; `name` is given
    op: int = SUM  # the engine's number; any other goes plain


class TensorSums(NamedSums[torch.Tensor]):
    """Starts the rounds of tensors.

    Parameters
    ----------
    session : TorchSession, optional
        The session that carries the tensors; None where this worker is alone.
    devices : Devices
        Those of this process.
    """

    def __init__(self, session: Optional[TorchSession], devices: Devices) -> None:
        super().__init__(session)
        self._tensors = session
        self._devices = devices
        self._reductions = None if session is None else Reductions(session)
        self._named = None if session is None else NamedCalls(session)

    def start(self, tensor: torch.Tensor, call: Call, into: Optional[torch.Tensor] = None) -> int:
        """Begin to add up every worker's `tensor`; return the number to ask for it.

        Parameters
        ----------
        tensor : Tensor
            Must not change until the round is over.
        call : Call
            The options.
        into : Tensor, optional
            Receives the result at the end; may be `tensor`.
        """
        check_name(call.name)
        label = "a tensor without a name" if call.name is None else repr(call.name)
        check_summable(tensor, f"push_pull of {label}")
        if call.op != SUM:
            return self._start_reduction(tensor, call, into)
        if call.average and not (tensor.is_floating_point() or tensor.is_complex()):
            raise UsageError(
                f"push_pull of {label}: the mean of {tensor.dtype} is no whole number; pass "
                "average=False, or a tensor of floats",
                5,
            )
        plain = tensor.detach().contiguous().resolve_conj().resolve_neg()
        pending: Optional[Round] = None
        session = self._tensors
        if session is not None and session.num_workers > 1 and plain.numel():
            device = self._devices.of(plain, f"push_pull of {label}")
            passage = Passage(call.compression, device, session.sums_on_devices)
            send = passage.compress(plain)
            if passage.coding_of(send) is None:
                session.check_place(send, f"push_pull of {label}", device)
            key, named = self._key(session, call, send)
            if device is not None:
                device.check_works(f"push_pull of {label}")
            passage.make_room(send)
            how = RoundCall(call.priority, call.average, coding=passage.coding_of(send))
            pending = passage.start(session, key, send, how)
            if named is not None and device is None:
                pending = named.carried_by(cast(Pending, pending))  # the engine's own round
        else:
            passage = Passage(call.compression, None)
            send = passage.compress(plain)
            passage.received = send.clone() if send.data_ptr() == tensor.data_ptr() else send
        shape = tensor.shape

        def finish() -> torch.Tensor:
            total = passage.result().view(shape)
            if into is None:
                return total
            with torch.no_grad():
                return into.copy_(total)

        return self.keep(pending, finish)

    def _start_reduction(
        self, tensor: torch.Tensor, call: Call, into: Optional[torch.Tensor]
    ) -> int:
        """Begin to reduce a copy of every worker's `tensor`; otherwise as `start`."""
        if tensor.is_complex():
            raise UsageError(
                f"allreduce: {tensor.dtype} has no order and no product here; hand over "
                "torch.view_as_real(tensor)",
                5,
            )
        memory = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        pending: Optional[Round] = None
        session = self._tensors
        if session is not None and session.num_workers > 1 and memory.numel():
            assert self._reductions is not None
            flat = memory.view(-1)
            pending = self._reductions.start(flat, call.op, call.name, call.priority)

        def finish() -> torch.Tensor:
            if into is None:
                return memory.to(tensor.device)
            with torch.no_grad():
                return into.copy_(memory)

        return self.keep(pending, finish)

    def _key(
        self, session: TorchSession, call: Call, send: torch.Tensor
    ) -> Tuple[int, Optional[SumCall]]:
        """Return the key of a sum, and the call by which workers compare operations.

        The script has to have given a name.  A call that is refused here is not counted.
        """
        named: List[SumCall] = []

        def declare(key: int) -> None:
            if call.name is not None and not call.bookkeeping:
                assert self._named is not None
                named.append(self._named.next_sum(call.name))
                self._named.state(named[0])
            session.declare_tensors([(key, torch.zeros_like(send, device="cpu"))])

        if call.bookkeeping:
            assert call.name is not None
            return self.bookkeeping_key(call.name, declare), None
        key = self.key_of(call.name, str(send.dtype), send.numel(), declare)
        if call.name is not None and not named:
            assert self._named is not None
            named.append(self._named.next_sum(call.name))
        return key, named[0] if named else None

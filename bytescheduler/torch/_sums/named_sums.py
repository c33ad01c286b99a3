"""Sums of single tensors, each under a name that all workers give alike."""

import itertools
from typing import Dict, Iterator, List, NamedTuple, Optional, Type

import torch

from bytescheduler._session.keys import EngineKeys
from bytescheduler.errors import UsageError
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._device.transit import Transit
from bytescheduler.torch._engine.dtypes import check_summable
from bytescheduler.torch._engine.framework import Round
from bytescheduler.torch._engine.session import RoundCall, TorchSession
from bytescheduler.torch._sums.compression import Compression, Compressor

__all__ = ["Call", "NamedSums"]

# Rounds of tensors without a name that can be under way side by side, for each dtype and size.
_PLACES = 8


class Call(NamedTuple):
    """The options of one push-pull."""

    average: bool = True
    name: Optional[str] = None
    priority: int = 0
    compression: Type[Compressor] = Compression.none


class _Key(NamedTuple):
    number: int
    dtype: torch.dtype
    elements: int


class _Round(NamedTuple):
    pending: Optional[Round]  # None: there is nothing to send
    result: torch.Tensor
    compression: Type[Compressor]
    context: Optional[torch.dtype]
    shape: torch.Size
    into: Optional[torch.Tensor]
    transit: Optional[Transit]  # None: the tensor is the processor's


class NamedSums:
    """Starts rounds, and keeps those that were not asked for yet.

    Tensors without a name share a few keys for each dtype and size, in the order of the calls.

    Parameters
    ----------
    session : TorchSession, optional
        The session that carries the tensors; None where this worker is alone.
    devices : Devices
        Those of this process.
    """

    def __init__(self, session: Optional[TorchSession], devices: Devices) -> None:
        self._session = session
        self._devices = devices
        self._keys = None if session is None else EngineKeys(session)
        self._known: Dict[str, _Key] = {}
        self._rounds: Dict[int, _Round] = {}
        self._numbers = itertools.count()
        self._calls: Dict[str, Iterator[int]] = {}
        if session is not None:
            session.count(self)

    def unfinished(self) -> List[Round]:
        """See `Source`."""
        return [each.pending for each in self._rounds.values() if each.pending is not None]

    def at_end(self) -> None:
        """See `Source`: nothing is lost."""

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
        label = "a tensor without a name" if call.name is None else repr(call.name)
        check_summable(tensor, f"push_pull of {label}")
        if call.average and not (tensor.is_floating_point() or tensor.is_complex()):
            raise UsageError(
                f"push_pull of {label}: the mean of {tensor.dtype} is no whole number; pass "
                "average=False, or a tensor of floats",
                5,
            )
        plain = tensor.detach().contiguous().resolve_conj().resolve_neg()
        send, context = call.compression.compress(plain)
        pending: Optional[Round] = None
        result, transit = send, None
        if self._session is not None and self._session.num_workers > 1 and send.numel():
            device = self._devices.of(send, f"push_pull of {label}")
            key = self._key(call.name, send)
            coding = call.compression.coding if send.dtype == torch.float32 else None
            how = RoundCall(call.priority, call.average, coding=coding)
            if device is None:
                result = torch.empty_like(send)
                pending = self._session.start(key, send, result, how)
            else:
                device.check_works(f"push_pull of {label}")
                transit = Transit(device, send)
                pending = transit.start(self._session, key, send, how)
        elif result.data_ptr() == tensor.data_ptr():
            result = send.clone()
        number = next(self._numbers)
        self._rounds[number] = _Round(
            pending, result, call.compression, context, tensor.shape, into, transit
        )
        return number

    def over(self, number: int) -> bool:
        """Return whether a round is over; raise what it failed with."""
        pending = self._round(number).pending
        if pending is None or self._session is None:
            return True
        with self._session.translated():
            return pending.over()

    def finish(self, number: int) -> torch.Tensor:
        """Return the result of a round, once.  Blocks."""
        done = self._round(number)
        del self._rounds[number]
        result = done.result
        if done.pending is not None and self._session is not None:
            self._session.wait(done.pending)
        if done.transit is not None:
            result = done.transit.finish()
        result = done.compression.decompress(result, done.context).view(done.shape)
        if done.into is None:
            return result
        with torch.no_grad():
            return done.into.copy_(result)

    def declare(self, name: str) -> None:
        """Reserve a name; an error if another one has the same number."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"declare: want a name, got {name!r}", 5)
        if self._keys is not None:
            self._keys.of([name])

    def _round(self, number: int) -> _Round:
        if number not in self._rounds:
            raise UsageError(
                f"handle {number!r}: no such push-pull is under way; each handle that "
                "push_pull_async returned can be synchronised once",
                5,
            )
        return self._rounds[number]

    def _key(self, name: Optional[str], send: torch.Tensor) -> int:
        if name is None:
            kind = f"no name, {send.dtype} x {send.numel()}"
            calls = self._calls.setdefault(kind, itertools.count())
            name = f"{kind}, {next(calls) % _PLACES}"
        known = self._known.get(name)
        if known is None:
            known = self._declared(name, send)
        if (known.dtype, known.elements) != (send.dtype, send.numel()):
            raise UsageError(
                f"push_pull of {name!r}: {send.numel()} elements of {send.dtype}, before it had "
                f"{known.elements} of {known.dtype}; give tensors of another size another name",
                5,
            )
        return known.number

    def _declared(self, name: str, send: torch.Tensor) -> _Key:
        assert self._keys is not None
        assert self._session is not None
        number = self._keys.of([name])[name]
        self._session.declare_tensors([(number, torch.zeros_like(send, device="cpu"))])
        self._known[name] = _Key(number, send.dtype, send.numel())
        return self._known[name]

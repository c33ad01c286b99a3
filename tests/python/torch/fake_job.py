"""A job of two workers without a network: the other one sends the same as this one."""

import contextlib
import ctypes
from typing import (
    Any,
    Callable,
    ContextManager,
    Counter,
    Dict,
    Iterable,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
)

import torch
from fake_device import FakeDevices, at_address

from bytescheduler._native import Coding
from bytescheduler._session.rounds import RoundCall
from bytescheduler.errors import PeerLost
from bytescheduler.torch._device.devices import Devices
from bytescheduler.torch._engine.session import TorchSession


def peeked(params: Iterable[torch.Tensor]) -> List[torch.Tensor]:
    """Return copies of weights as they are, without their updates."""
    with torch._C.DisableTorchFunctionSubclass():
        return [param.detach().clone() for param in params]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


_Place = Tuple[int, int, torch.dtype]


def _place(tensor: torch.Tensor) -> _Place:
    return tensor.data_ptr(), tensor.numel(), tensor.dtype


class FakePending:
    """A round: the sum comes when it is waited for, unless it is held back."""

    def __init__(self, session: "FakeSession", key: int, call: RoundCall) -> None:
        self.session = session
        self.key = key
        self.call = call
        self.memory: Tuple[torch.Tensor, torch.Tensor]
        self.places: List[_Place] = []
        self.owner: List[object] = []  # keeps the memory alive, as the engine's rounds do
        self.is_begun = False
        self.is_over = False
        self._begin = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.begin())

    @property
    def starter(self) -> Tuple[int, int]:
        return ctypes.cast(self._begin, ctypes.c_void_p).value or 0, 0

    def begin(self) -> None:
        """Send what is there now, and receive the sum at once, as a quick network does."""
        assert not self.is_begun
        self.is_begun = True
        with torch._C._DisableFuncTorch():  # the engine receives without PyTorch
            send, recv = (at_address(*place) for place in self.places)
            recv.copy_(send * ((1 + self.session.peer) / 2 if self.call.average else 2))

    def wait_for(self, timeout_ms: int) -> bool:
        if not self.call.deferred:
            self.wait()
            return True
        assert self.session.devices is not None
        self.session.devices.advance()
        if self.is_begun:
            self.wait()
        return self.is_begun

    def over(self) -> bool:
        if self.session.names.get(self.key, "") in self.session.arrived:
            self.wait()
        return self.is_over

    def wait(self) -> None:
        name = self.session.names.get(self.key, "")
        if name in self.session.held:
            raise Held(f"{name} is held back")
        if self.session.failure is not None:
            raise self.session.failure
        if not self.is_begun:
            self.begin()
        if not self.is_over:
            sent, received = (torch.empty(0, dtype=dtype) for _, _, dtype in self.places)
            self.memory = sent, received
            self.owner.clear()
        self.is_over = True


class Held(Exception):
    """A wait that would not end."""


class FakeMeeting:
    """An exchange in which the other worker states the same."""

    def over(self) -> bool:
        return True


class FakeSession:
    """See `TorchSession`."""

    error = RuntimeError

    def __init__(self) -> None:
        self.rank = 0
        self.num_workers = 2
        self.peer = 1  # the other worker's gradients, in units of this worker's
        self.names: Dict[int, str] = {}
        self.shown: List[str] = []  # what timelines were told, in order
        self.held: List[str] = []  # names of keys whose sums do not come
        self.arrived: List[str] = []  # names of keys whose sums come unasked
        self.failure: Optional[PeerLost] = None
        self.why = ""
        self.rounds: List[FakePending] = []
        self.given_back: List[str] = []  # names of keys
        self.devices: Optional[FakeDevices] = None
        self.cut_for: Dict[Coding, List[str]] = {}  # names of keys that were declared for a coding
        self.sums_on_devices = False
        self.nccl_by = "BYTESCHEDULER_COMM=nccl", "BYTESCHEDULER_COMM=direct"
        self._spaces = 0
        self._counts: Counter[Optional[str]] = Counter()

    def new_key_space(self) -> int:
        self._spaces += 1
        return self._spaces - 1

    def name(self, number: int, key: object) -> None:
        self.names[number] = str(key)

    def show(self, number: int, name: str) -> None:
        self.names[number] = name
        self.shown.append(name)

    def count(self, source: object) -> None:
        pass

    def count_of(self, name: Optional[str]) -> int:
        self._counts[name] += 1
        return self._counts[name]

    def start_exchange(self, exchange: object, **_: object) -> FakeMeeting:
        return FakeMeeting()

    def give_back(self, keys: Iterable[int], is_idle: Callable[[], bool]) -> None:
        self.given_back += [self.names[key] for key in keys] if is_idle() else []

    def tune(self) -> None:
        pass

    def declare(self, items: object, *, owner: object) -> None:
        pass

    def declare_tensors(
        self, tensors: Sequence[Tuple[int, torch.Tensor]], coding: Optional[Coding] = None
    ) -> None:
        if coding is not None:
            self.cut_for[coding] = [self.names[key] for key, _ in tensors]
        for _, tensor in tensors:
            assert tensor.is_contiguous() or _bytes(tensor) == tensor.untyped_storage().nbytes()

    def start(
        self, key: int, send: torch.Tensor, recv: torch.Tensor, call: RoundCall
    ) -> FakePending:
        assert send.is_cpu
        assert recv.is_cpu
        assert send.data_ptr() != recv.data_ptr()
        assert not any(each.is_conj() or each.is_neg() for each in (send, recv))  # as memory is
        assert send.stride() == recv.stride() or send.dim() == 1
        pending = FakePending(self, key, call)
        pending.memory = send, recv
        pending.places = [_place(send), _place(recv)]
        pending.owner += [send.untyped_storage(), recv.untyped_storage()]
        assert not call.deferred or self.devices is not None
        self.rounds.append(pending)
        return pending

    start_on_device = start
    check_place = TorchSession.check_place

    def start_round(
        self, key: int, send: int, recv: int, size: int, call: RoundCall, *, owner: object
    ) -> FakePending:
        vectors = [(ctypes.c_int32 * (size // 4)).from_address(place) for place in (send, recv)]
        return self.start(key, *(torch.frombuffer(v, dtype=torch.int32) for v in vectors), call)

    def wait(self, pending: FakePending) -> None:
        pending.wait()

    def translated(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def give_up(self, why: str) -> None:
        self.why = why

    def sent(self) -> List[str]:
        """Return the names of what was sent, in order."""
        return [self.names[each.key] for each in self.rounds]


class FakeObjects:
    """See `TensorObjects`: the other worker has the same, but where `changed` makes another."""

    def __init__(self) -> None:
        self.changed: Callable[[Any], Any] = lambda value: value  # this worker's, to the other's
        self.given: List[str] = []  # names of tensors that all workers have from worker 0

    def check_alike(self, tensors: object, root: int) -> None:
        pass

    def gather(self, value: object) -> List[object]:
        return [value, self.changed(value)]

    def gather_unequal(self, value: object) -> List[object]:
        both = self.gather(value)
        return [] if repr(both[0]) == repr(both[1]) else both

    def broadcast_tensors(self, tensors: Sequence[Tuple[str, torch.Tensor]], root: int) -> None:
        self.given += [name for name, _ in tensors]


class FakeSums:
    """See `TensorSums`: the mean of equal values."""

    def start(self, value: torch.Tensor, call: object) -> torch.Tensor:
        return value

    def finish(self, handle: torch.Tensor) -> torch.Tensor:
        return handle


class FakeJob:
    """See `TorchJoined`."""

    def __init__(self, devices: "Optional[FakeDevices]" = None) -> None:
        self.session = self.carrier = FakeSession()
        self.session.devices = devices
        self.devices = devices or Devices()
        self.objects = FakeObjects()
        self.sums = FakeSums()
        self.unflushed: Set[object] = set()
        self.rank = 0
        self.size = 2

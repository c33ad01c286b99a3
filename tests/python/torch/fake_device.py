"""A device made of the processor's memory: its work comes late, in an order drawn by a seed.

Memory that a copy has not yet written holds no number.  PyTorch's own operations run at once.  So
where the current stream waits for a copy from the processor, its target has the values at once, and
the copy itself still comes late: it fails if the memory that it reads has changed by then.
"""

import atexit
import collections
import ctypes
import random
import threading
import time
import weakref
from typing import Any, Callable, Deque, Iterable, List, Optional, Set, Tuple

import torch

from bytescheduler._native import fail_exit
from bytescheduler.torch._device.device import Device

_PAUSE_S = 0.0005
_PAUSES = 0.05


class FakeEvent:
    """See `Event`."""

    def __init__(self, stream: "FakeStream") -> None:
        self.stream = stream
        self.is_over = False

    def query(self) -> bool:
        self.stream.advance()
        return self.is_over


class Work:
    """A piece of work that can always be done."""

    event: Optional[FakeEvent] = None  # that it ends

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run

    def is_ready(self) -> bool:
        return True

    def run(self) -> None:
        self._run()

    def look_ahead(self) -> None:
        """Let the caller see what it does, before it does it."""


class Mark(Work):
    def __init__(self, event: FakeEvent) -> None:
        self.event = event

    def run(self) -> None:
        assert self.event is not None
        self.event.is_over = True


class Wait(Work):
    def __init__(self, event: FakeEvent) -> None:
        self._awaited = event

    def is_ready(self) -> bool:
        return self._awaited.is_over

    def run(self) -> None:
        pass


class Pause(Work):
    """Takes its time, from when it is the next one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: Optional[float] = None

    def is_ready(self) -> bool:
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return time.monotonic() >= self._end

    def run(self) -> None:
        pass


class Keep(Work):
    """Keeps memory that a stream was lent until the work before is done."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor: Optional[torch.Tensor] = tensor

    def run(self) -> None:
        self._tensor = None


class Copy(Work):
    """A copy; `is_from_here` says that it reads the processor's memory, which must not change."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor, is_from_here: bool) -> None:
        self._source, self._target = weakref.ref(source), weakref.ref(target)
        self._kept = source if is_from_here else target  # pinned memory, as PyTorch keeps it
        self._values = source.detach().clone() if is_from_here else None
        self._is_shown = False

    def run(self) -> None:
        # A device asks no tensor, and knows no mode.
        with torch._C.DisableTorchFunctionSubclass(), torch.inference_mode():
            self._run_plain()

    def _run_plain(self) -> None:
        source, target = self._source(), self._target()
        assert source is not None, "memory was given back before it was copied"
        if self._values is not None:
            same = torch.allclose(source, self._values, rtol=0, atol=0, equal_nan=True)
            assert same, "memory was used again before it was copied"
        if not self._is_shown:
            assert target is not None, "memory was given back before a copy to it"
            target.data.copy_(source)

    def look_ahead(self) -> None:
        target = self._target()
        if self._values is not None and target is not None and not self._is_shown:
            self._is_shown = True
            with torch.inference_mode():
                target.data.copy_(self._values)


class FakeStream:
    """See `Stream`."""

    def __init__(self, runtime: "FakeRuntime", speed: float) -> None:
        self._runtime = runtime
        self.speed = speed
        self.work: Deque[Work] = collections.deque()

    def put(self, work: Work) -> None:
        self.work.append(work)
        self._runtime.advance()

    def advance(self) -> None:
        self._runtime.check()
        self._runtime.advance()

    def record_event(self) -> FakeEvent:
        event = FakeEvent(self)
        self.put(Mark(event))
        return event

    def wait_event(self, event: FakeEvent) -> None:
        self.put(Wait(event))


class Current(FakeStream):
    """The stream of PyTorch's operations."""

    def wait_event(self, event: FakeEvent) -> None:
        with self._runtime.lock:  # the work may be done meanwhile
            for work in list(event.stream.work):
                if work.event is event:
                    break
                work.look_ahead()
        super().wait_event(event)


class FakeRuntime:
    """See `Runtime`.

    Parameters
    ----------
    seed : int
        Draws which work is done when.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.lock = threading.RLock()
        self._current = Current(self, self._speed())
        self._streams: List[FakeStream] = [self._current]
        self.is_slow = False  # nothing is done but by `run_until`
        self._pinned: Set[int] = set()
        self.copies = 0
        self.captures = False
        self._not_lent: Set[int] = set()
        self.failure: Optional[Exception] = None

    # -- as of any runtime -----------------------------------------------------------------------

    def current(self) -> FakeStream:
        return self._current

    def stream(self) -> FakeStream:
        self._streams.append(FakeStream(self, self._speed()))
        return self._streams[-1]

    def pinned(self, like: torch.Tensor) -> torch.Tensor:
        memory = _poisoned(torch.empty_like(like, device="cpu", requires_grad=False))
        self._pinned.add(id(memory))
        weakref.finalize(memory, self._pinned.discard, id(memory))
        return memory

    def empty(self, stream: FakeStream, like: torch.Tensor) -> torch.Tensor:
        self._check_lent()
        memory = _poisoned(torch.empty_like(like, device="cpu"))
        self._not_lent.add(id(memory))
        return memory

    def lend(self, tensor: torch.Tensor, stream: FakeStream) -> None:
        if stream is self._current:
            self._not_lent.discard(id(tensor))
        else:
            stream.put(Keep(tensor))

    def _check_lent(self) -> None:
        assert not self._not_lent, "memory was not lent to the stream that uses it"

    def copy(self, stream: FakeStream, source: torch.Tensor, target: torch.Tensor) -> None:
        self.copies += 1
        stream.put(Copy(source, target, id(source) in self._pinned))

    def call(self, stream: FakeStream, function: int, argument: int) -> None:
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        stream.put(Work(lambda: kind(function)(argument)))

    def is_capturing(self) -> bool:
        return self.captures

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # -- of this double --------------------------------------------------------------------------

    def late(self, tensor: torch.Tensor) -> None:
        """Let the current stream make the values of `tensor` later."""
        values = tensor.detach().clone()
        _poisoned(tensor.data)  # which no counter of changes sees
        memory = tensor.untyped_storage()  # a tensor would be a second one in this memory
        place = tensor.data_ptr(), tensor.numel(), tensor.dtype

        def make() -> None:
            assert memory.nbytes()
            at_address(*place).copy_(at_address(values.data_ptr(), *place[1:]))

        self._current.put(Work(make))

    def pause(self, seconds: float) -> None:
        """Let work that the current stream gets later begin so late."""
        self._current.put(Pause(seconds))

    def advance(self) -> None:
        """Do some of the work that can be done."""
        if not self.is_slow:
            for _ in range(self._random.choice((0, 0, 1, 2, 5))):
                self._one()

    @property
    def has_work(self) -> bool:
        return any(each.work for each in self._streams)

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Do work until `condition` is true."""
        self._check_lent()
        while not condition():
            assert self._one(), "the device has no work left"

    def on_a_thread(self) -> Callable[[], None]:
        """Do work beside the caller, as devices do; return what ends it, as the process does too.

        A mistake that is found there ends each wait for the device, and the process with 1.
        """
        over = threading.Event()

        def run() -> None:
            try:
                while not over.is_set():
                    if not self._one() or self._random.random() < _PAUSES:
                        time.sleep(_PAUSE_S)
            except Exception as error:  # noqa: B902 - of any work
                self.failure = error

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def stop() -> None:
            atexit.unregister(at_exit)
            over.set()
            thread.join()
            self.check()

        def at_exit() -> None:
            try:
                stop()
            except Exception:
                fail_exit()
                raise

        atexit.register(at_exit)  # a thread in PyTorch's code would abort the end of Python
        return stop

    def _speed(self) -> float:
        return 10.0 ** self._random.uniform(-3, 0)

    def _one(self) -> bool:
        with self.lock:
            ready = [each for each in self._streams if each.work and each.work[0].is_ready()]
            if not ready:
                return False
            speeds = [each.speed for each in ready]
            self._random.choices(ready, speeds)[0].work.popleft().run()
            return True


class FakeDevices:
    """See `Devices`: parameters of which `is_on` tells so are on the double.

    Parameters
    ----------
    seed : int
        Of the double.
    is_on : callable, optional
        Gets a name; all are on it if not given.
    kind : type
        The class to test, or one that makes a mistake.
    runtime : FakeRuntime, optional
        A double that others use too.
    """

    def __init__(
        self,
        seed: int = 0,
        is_on: Callable[[str], bool] = lambda name: True,
        kind: Callable[[Any], Device] = Device,
        runtime: Optional[FakeRuntime] = None,
    ) -> None:
        self.runtime = FakeRuntime(seed) if runtime is None else runtime
        self.device = kind(self.runtime)
        self._is_on = is_on

    def of(self, tensor: torch.Tensor, name: str) -> Optional[Device]:
        return self.device if self._is_on(name) else None

    @property
    def copies(self) -> int:
        return self.runtime.copies

    def advance(self) -> None:
        self.runtime.advance()

    def make_late(self, named: Iterable[Tuple[str, torch.nn.Parameter]]) -> None:
        """Let gradients come later than backward; nothing else has hooked the parameters yet."""
        for name, param in named:
            if self._is_on(name) and param.requires_grad:
                param.register_post_accumulate_grad_hook(lambda p: self.runtime.late(p.grad))


def at_address(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return elements in the order of memory, which the caller keeps alive."""
    size = count * torch.empty(0, dtype=dtype).element_size()
    memory = (ctypes.c_byte * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=count)


def _poisoned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(float("nan") if tensor.is_floating_point() else 77)

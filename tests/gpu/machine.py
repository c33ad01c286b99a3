"""What the workers train on: a GPU, or the double that the tests have."""

import contextlib
import pathlib
import sys
import time
from typing import Any, Callable, ContextManager, Iterator

import torch

from bytescheduler.torch._backend import registration
from bytescheduler.torch._job.job import current

__all__ = ["Double", "Gpu"]


class Gpu:
    """The first GPU, which all workers share."""

    device = torch.device("cuda", 0)
    # Long beside all that a script does between two calls, short beside the limit of run.sh.
    long_s = 1.0
    pause_s = 0.02

    def __init__(self) -> None:
        torch.cuda.set_device(self.device)
        torch.use_deterministic_algorithms(True)
        self.name = torch.cuda.get_device_name(self.device)
        self._cycles_per_s = self._measured()

    def _measured(self) -> float:
        """Return how fast the counter runs that `busy` looks at."""
        cycles = 100_000_000
        torch.cuda._sleep(1000)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        return 1000.0 * cycles / begin.elapsed_time(end)

    def busy(self, seconds: float) -> None:
        """Put a kernel on the current stream that takes so long."""
        torch.cuda._sleep(int(self._cycles_per_s * seconds))

    def mark(self) -> Callable[[], bool]:
        """Return a function that tells whether the current stream's work until now is done."""
        event = torch.cuda.Event()
        event.record()
        return lambda: bool(event.query())

    def wait(self) -> None:
        """Wait for all work."""
        torch.cuda.synchronize(self.device)

    def let_be_late(self, model: torch.nn.Module) -> None:
        """Do nothing: a GPU's gradients are late by themselves."""

    def at_home(self) -> ContextManager[None]:
        """Do nothing: tensors of the CPU are told from those of a GPU."""
        return contextlib.nullcontext()


class Double:
    """Memory of the processor, with copies that come late."""

    device = torch.device("cpu")
    name = "the double of a device"
    long_s = 0.5
    pause_s = 0.004

    def __init__(self) -> None:
        tests = pathlib.Path(__file__).resolve().parents[1]
        for folder in ("backend", "."):
            sys.path.insert(0, str(tests / "python" / "torch" / folder))
        from fake_device import FakeDevices
        from fake_stagings import FakeStagings

        torch.set_num_threads(1)
        self._is_at_home = False
        stagings: Any = FakeStagings(1, lambda tensor: None if self._is_at_home else 0)
        registration.WORLD.stagings = stagings
        self._devices: Any = FakeDevices(
            1, lambda name: "on_cpu" not in name, runtime=stagings.runtime
        )
        self._devices.runtime.on_a_thread()
        current().devices = self._devices

    def busy(self, seconds: float) -> None:
        """Let work of the current stream that comes later begin so late."""
        self._devices.runtime.pause(seconds)

    def mark(self) -> Callable[[], bool]:
        """Return a function that tells whether the current stream's work until now is done."""
        event = self._devices.runtime.current().record_event()
        return lambda: bool(event.is_over)

    def wait(self) -> None:
        """Wait for all work."""
        while self._devices.runtime.has_work:
            time.sleep(0.001)

    def let_be_late(self, model: torch.nn.Module) -> None:
        """Let gradients come later than backward."""
        self._devices.make_late(model.named_parameters())

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        """Let calls of torch.distributed take their tensors for those of the CPU."""
        self._is_at_home = True
        yield
        self._is_at_home = False

"""Copies between devices and memory that exchanges use, each behind the work that it needs."""

import threading
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._backend.devices.device_watch import DeviceWatch
from bytescheduler.torch._device.cuda import Cuda
from bytescheduler.torch._device.driver import Driver
from bytescheduler.torch._device.runtime import Event, Runtime

__all__ = ["Staging", "Stagings"]


class Staging:
    """The copies of one device, in streams of our own; the caller waits for none of them.

    Parameters
    ----------
    runtime : Runtime
        The device itself.
    devices : sequence of torch.device, optional
        The device, as futures of PyTorch want it.

    Attributes
    ----------
    watch : DeviceWatch
        Looks at the ends of downloads.
    """

    def __init__(self, runtime: Runtime, devices: Sequence[torch.device] = ()) -> None:
        self._runtime = runtime
        self._down = runtime.stream()
        self._up = runtime.stream()
        self.devices = list(devices)
        self.watch = DeviceWatch()

    def check_works(self) -> None:
        """Raise UsageError if the current stream is captured into a graph."""
        if self._runtime.is_capturing():
            raise UsageError(
                "a CUDA graph is captured, and its replays cannot make a call again; leave "
                "collectives out of the graph, or train without graphs",
                5,
            )

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return dense memory of the processor that the device and exchanges reach."""
        with torch.inference_mode(False):  # a copy to it may come in any mode
            return self._runtime.pinned(torch.empty(shape, dtype=dtype, device="meta"))

    def mark(self) -> Event:
        """Return the end of the work on the current stream."""
        return self._runtime.current().record_event()

    def download(self, pairs: Sequence[Tuple[torch.Tensor, torch.Tensor]], begun: Event) -> Event:
        """Copy each first tensor to the second one after `begun`; return the end of all copies."""
        self._down.wait_event(begun)
        for source, room in pairs:
            self._runtime.copy(self._down, source, room)
            self._runtime.lend(source, self._down)
        return self._down.record_event()

    def upload(self, room: torch.Tensor, target: torch.Tensor, begun: Event) -> None:
        """Copy memory to `target` after `begun`: earlier work may read the target."""
        self._up.wait_event(begun)
        self._runtime.copy(self._up, room, target)
        self._runtime.lend(target, self._up)

    def follow(self) -> None:
        """Let the current stream wait for all uploads until now."""
        self._runtime.current().wait_event(self._up.record_event())


def _runtime_of(device: torch.device) -> Runtime:
    if torch.version.hip is not None:
        raise UsageError(
            f"a tensor is on {device}, a GPU of AMD, and the backend bytescheduler takes tensors "
            "of the CPU and of NVIDIA's GPUs; move it there first, tensor.cpu()",
            5,
        )
    return Cuda(device, Driver("a tensor"))


class Stagings:
    """The devices of this process, each opened when its first tensor comes.

    Parameters
    ----------
    runtime_of : callable, optional
        Opens a device.
    """

    def __init__(self, runtime_of: Callable[[torch.device], Runtime] = _runtime_of) -> None:
        self._runtime_of = runtime_of
        self._known: Dict[torch.device, Staging] = {}
        self._lock = threading.Lock()

    def of(self, tensor: torch.Tensor) -> Optional[Staging]:
        """Return the staging of a tensor's device; None: exchanges use its memory itself.

        Raises
        ------
        UsageError
            It is on a GPU that this package does not know.
        """
        if tensor.is_cpu:
            return None
        device = tensor.device
        with self._lock:
            if device not in self._known:
                self._known[device] = Staging(self._runtime_of(device), [device])
            return self._known[device]

    def opened(self) -> List[Staging]:
        """Return the stagings of all devices that had tensors."""
        with self._lock:
            return list(self._known.values())

    def close(self) -> None:
        """End all threads; the devices stay known.  Blocks as `DeviceWatch.close`."""
        for staging in self.opened():
            staging.watch.close()

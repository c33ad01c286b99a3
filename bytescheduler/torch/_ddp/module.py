"""`DistributedDataParallel`: a module whose gradients are means when backward returns."""

import contextlib
from typing import Any, Iterator, Optional, Sequence, Type

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.checks import check_model
from bytescheduler.torch._gradients.gradients import GradientOptions, Gradients
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.compression import Compression, Compressor

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]  # types are not read
    """A module whose gradients are means over all workers as soon as backward returns.

    Any optimizer works with it.  Forward does not cross the barrier: `DistributedOptimizer` does.

    Parameters
    ----------
    module : Module
        Gets worker 0's parameters and buffers.
    device_ids : list, optional
        For scripts of PyTorch's own class: at most one device, which is the module's.
    broadcast_buffers : bool
        Whether buffers, such as running means, become worker 0's before each forward in training.
    find_unused_parameters : bool
        Whether backward may leave parameters out; False makes that an error.
    compression : Compressor
        The form in which gradients travel.

    Raises
    ------
    UsageError
        A parameter cannot be used; the message names it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Any]] = None,
        broadcast_buffers: bool = True,
        find_unused_parameters: bool = True,
        compression: Type[Compressor] = Compression.none,
    ) -> None:
        super().__init__()
        check_model(module)
        if device_ids is not None and len(device_ids) > 1:
            raise UsageError(
                f"device_ids={list(device_ids)!r}: a worker has one device; start one worker a "
                "device",
                5,
            )
        members = [(name, p, 0) for name, p in module.named_parameters() if p.requires_grad]
        if not members:
            raise UsageError(
                "DistributedDataParallel: no parameter of the module has a gradient", 5
            )
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self._job = current().get()
        current().flush()  # these parameters may have had another optimizer
        self._gradients: Optional[Gradients] = None
        if self._job.carrier is None:
            return
        options = GradientOptions(compression, find_unused=find_unused_parameters)
        self._gradients = Gradients(self._job, members, options, self._begun)
        tensors = [*module.named_parameters(), *module.named_buffers()]
        self._job.objects.broadcast_tensors(tensors, 0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the module."""
        syncs = self._gradients is not None and not self._gradients.paused
        if syncs and self.broadcast_buffers and self.training and torch.is_grad_enabled():
            self._job.objects.overwrite(list(self.module.buffers()), 0)
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients accumulate on this worker; the next backward after it sends all."""
        gradients = self._gradients
        if gradients is None:
            yield
            return
        before, gradients.paused = gradients.paused, True
        try:
            yield
        finally:
            gradients.paused = before

    def _begun(self) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        if self._gradients is not None:
            self._gradients.sum_up()
            self._gradients.forget_sums()

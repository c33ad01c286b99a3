"""`DistributedDataParallel`: a module whose gradients are means when backward returns."""

import contextlib
from typing import Any, Iterator, Optional, Sequence

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._ddp.arguments import (
    agree_on_choice,
    check_choice,
    check_devices,
    check_foreign,
    check_group,
    say_needless,
    tell_without_rates,
)
from bytescheduler.torch._ddp.buffers import Buffers
from bytescheduler.torch._ddp.keeper import keep_alive, let_go
from bytescheduler.torch._gradients.checks import check_model
from bytescheduler.torch._gradients.gradients import Gradients
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.choice import CompressionParams, choice_of
from bytescheduler.torch._sums.compression import Chosen, Compression

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]  # types are not read
    """A module whose gradients are means over all workers as soon as backward returns.

    Any optimizer works with it.  Forward does not cross the barrier: `DistributedOptimizer` does.
    Gradients stay means as long as the module lives, also where the script drops this object and
    calls the module itself, until `close`.

    Parameters
    ----------
    module : Module
        Gets worker 0's parameters and buffers.
    device_ids : list, optional
        For scripts of PyTorch's own class: at most one device, which is the module's.
    output_device : device, optional
        The device of the module, where outputs stay.
    dim : int
        Accepted and not needed: a worker has one device, so nothing is cut.
    broadcast_buffers : bool
        Whether buffers, such as running means, become worker 0's before each forward in training.
    init_sync : bool
        Whether the module gets worker 0's values now; False: they are equal already.
    process_group : ProcessGroup, optional
        A group of all workers.
    bucket_cap_mb : float, optional
        Accepted and not needed: gradients travel singly, and small gradients together.
    find_unused_parameters : bool
        Whether backward may leave parameters out; False makes that an error.
    gradient_as_bucket_view : bool
        Accepted and not needed: gradients are not copied to buckets.
    static_graph : bool
        Accepted and not needed: any graph is as good.
    compression : Compressor or str
        The form in which gradients travel.
    compression_params : dict, optional
        The way in which the engine compresses gradients and their sums, in place of `compression`,
        such as {"compressor": "onebit", "scaling": True, "ef": "vanilla"}.
    foreign : object
        Further arguments of PyTorch's own class, which are refused or not needed.

    Raises
    ------
    UsageError
        A parameter or an argument cannot be used; the message names it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Optional[Any] = None,  # noqa: ANN401
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Optional[Any] = None,  # noqa: ANN401
        bucket_cap_mb: Optional[float] = None,
        find_unused_parameters: bool = True,
        *,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        compression: Chosen = Compression.none,
        compression_params: CompressionParams = None,
        **foreign: object,
    ) -> None:
        super().__init__()
        check_model(module)
        members = [(name, p, 0) for name, p in module.named_parameters() if p.requires_grad]
        if not members:
            raise UsageError(
                "DistributedDataParallel: no parameter of the module has a gradient", 5
            )
        choice = choice_of(compression, compression_params)
        check_choice(choice)
        self._job = current().get()
        check_foreign(foreign)
        check_devices(members[0][1].device, device_ids, output_device)
        check_group(process_group, self._job.size)
        say_needless(
            dim=dim != 0,
            bucket_cap_mb=bucket_cap_mb is not None,
            gradient_as_bucket_view=gradient_as_bucket_view,
            static_graph=static_graph,
        )
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        current().flush()  # these parameters may have had another optimizer
        self._gradients: Optional[Gradients] = None
        self._buffers_alike: Optional[Buffers] = None
        if self._job.carrier is None:
            return
        options = GradientOptions(choice, find_unused=find_unused_parameters)
        tensors = [*module.named_parameters(), *module.named_buffers()]
        objects = self._job.objects
        agree_on_choice(objects, choice)
        if self._job.rank == 0:
            tell_without_rates(choice)
        self._gradients = Gradients(self._job, members, options, self._begun)
        try:
            (objects.broadcast_tensors if init_sync else objects.check_alike)(tensors, 0)
        except Exception:
            self.close()
            raise
        buffers = list(module.named_buffers())
        self._buffers_alike = Buffers(objects, self._job.carrier, buffers)
        keep_alive(self, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the module."""
        syncs = self._gradients is not None and not self._gradients.paused
        if syncs and self.broadcast_buffers and self.training and torch.is_grad_enabled():
            assert self._buffers_alike is not None
            self._buffers_alike.overwrite(list(self.module.named_buffers()))
        return self.module(*args, **kwargs)

    def close(self) -> None:
        """Average nothing any more: gradients stay this worker's own from now on."""
        if self._gradients is not None:
            self._gradients.close()
            self._gradients = None
            let_go(self.module)

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

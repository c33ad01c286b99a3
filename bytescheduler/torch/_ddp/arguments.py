"""The arguments of PyTorch's own DistributedDataParallel: used, answered or refused."""

from typing import Any, Mapping, Optional, Sequence

import torch

from bytescheduler._compression.params import FOLLOWING
from bytescheduler._process.say import say
from bytescheduler._session.objects import unlike
from bytescheduler.errors import UsageError
from bytescheduler.torch._sums.choice import ARGUMENTS, Choice
from bytescheduler.torch._sums.objects import TensorObjects

__all__ = [
    "agree_on_choice",
    "check_choice",
    "check_devices",
    "check_foreign",
    "check_group",
    "say_needless",
    "tell_without_rates",
]

_NEEDLESS = {
    "dim": "a worker has one device, so no batch is cut",
    "bucket_cap_mb": "gradients travel one by one, and small ones together",
    "gradient_as_bucket_view": "gradients are not copied to buckets",
    "static_graph": "nothing is learned of the graph, and any graph is as good",
    "check_reduction": "every backward ends with its means",
    "skip_all_reduce_unused_params": "zeros travel for them, as other workers may use them",
    "batched_grad_copy": "gradients are not copied to buckets",
    "bucket_cap_mb_list": "gradients travel one by one, and small ones together",
}
_REFUSED = {
    "mixed_precision": "use torch.autocast, and compression=Compression.bf16 for the way",
    "device_mesh": "means are over all workers; leave it out",
    "delay_all_reduce_named_params": "each gradient travels as soon as it is made; leave it out",
    "param_to_hook_all_reduce": "each gradient travels as soon as it is made; leave it out",
    "forward_sync_buffers": "pass broadcast_buffers",
}


def check_choice(choice: Choice) -> None:
    """Raise UsageError if gradients cannot travel so without their optimizer."""
    if choice.params.has_momentum:
        raise UsageError(
            "momentum 'nesterov' of compression_params: DistributedDataParallel does not see the "
            "optimizer, which must have none of its own; use DistributedOptimizer",
            5,
        )


def tell_without_rates(choice: Choice) -> None:
    """Say so if residuals are to follow a learning rate that is not seen here."""
    coding = choice.params.coding
    if coding is not None and coding.feedback in FOLLOWING:
        say(
            f"bytescheduler: ef {FOLLOWING[coding.feedback]!r} of compression_params follows the "
            "learning rate of the optimizer, which DistributedDataParallel does not see: it does "
            "what 'vanilla' does"
        )


def agree_on_choice(objects: TensorObjects, choice: Choice) -> None:
    """Raise UsageError on every worker if gradients travel otherwise on another.  Blocks."""
    by_rank = objects.gather_unequal(str(choice))
    rank = unlike(by_rank) if by_rank else None
    if rank is not None:
        raise UsageError(
            f"the argument {ARGUMENTS}: it is {by_rank[0]} on worker 0 and {by_rank[rank]} on "
            f"worker {rank}; pass the same to DistributedDataParallel on every worker",
            5,
        )


def check_devices(
    module_device: torch.device,
    device_ids: Optional[Sequence[Any]],
    output_device: Optional[Any],  # noqa: ANN401
) -> None:
    """Raise UsageError unless the devices are the module's own."""
    if device_ids is not None and len(device_ids) > 1:
        raise UsageError(
            f"device_ids={list(device_ids)!r}: a worker has one device; start one worker a device",
            5,
        )
    if output_device is None:
        return
    if isinstance(output_device, bool):
        raise UsageError(
            f"output_device={output_device!r}: want a device; pass broadcast_buffers by its name", 5
        )
    if not _is_same(module_device, output_device):
        raise UsageError(
            f"output_device={output_device!r}: outputs stay on {module_device}, where the "
            "module is; move them behind it, or leave it out",
            5,
        )


def _is_same(module_device: torch.device, wanted: Any) -> bool:  # noqa: ANN401
    if isinstance(wanted, int):
        return bool(module_device.type != "cpu" and module_device.index == wanted)
    device = torch.device(wanted)
    is_kind = device.type == module_device.type
    return bool(is_kind and device.index in (None, module_device.index))


def check_group(group: Optional[Any], workers: int) -> None:  # noqa: ANN401
    """Raise UsageError if a group of torch.distributed has not all workers."""
    if group is None:
        return
    try:
        size = int(group.size())
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise UsageError(
            f"process_group={group!r}: want a ProcessGroup of all workers; leave it out", 5
        ) from None
    if size != workers:
        raise UsageError(
            f"process_group: it has {size} of {workers} workers, and means are over all of them; "
            "leave it out, or use PyTorch's own class with ddp_hook",
            5,
        )


def check_foreign(foreign: Mapping[str, object]) -> None:
    """Raise UsageError for arguments that this class cannot do without; TypeError if unknown."""
    for name, value in foreign.items():
        if name not in _REFUSED and name not in _NEEDLESS:
            raise TypeError(f"DistributedDataParallel: there is no argument {name!r}")
        if name in _REFUSED and value is not None:
            raise UsageError(f"{name}: {_REFUSED[name]}", 5)
    say_needless(**{name: bool(value) for name, value in foreign.items() if name in _NEEDLESS})


def say_needless(**is_passed: bool) -> None:
    """Write a line for each argument that was passed and changes nothing."""
    for name, passed in is_passed.items():
        if passed:
            say(f"bytescheduler: DistributedDataParallel needs no {name}: {_NEEDLESS[name]}")

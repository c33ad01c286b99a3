"""A communication hook for PyTorch's own DistributedDataParallel."""

from typing import Any, List, NamedTuple

import torch

from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.compression import Chosen, chosen
from bytescheduler.torch._sums.tensor_sums import Call, TensorSums

__all__ = ["ddp_hook"]


class _Bucket(NamedTuple):
    sums: TensorSums
    round: int
    future: Any  # torch.futures.Future


class _Backward:
    """The buckets of one backward.  Its end comes before that of PyTorch, which waits for them."""

    def __init__(self) -> None:
        self._buckets: List[_Bucket] = []

    def add(self, bucket: _Bucket) -> None:
        """Give the future of `bucket` its mean at the end of this backward."""
        self._buckets.append(bucket)
        if _is_at_end():
            self._end()
        else:
            # Each time, as a backward that failed has left buckets and called nothing.
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        buckets, self._buckets = self._buckets, []
        for bucket in buckets:
            bucket.future.set_result(bucket.sums.finish(bucket.round))


def _is_at_end() -> bool:
    """Return whether backward has made all gradients.

    With a static graph the first backward hands over its buckets only then, and waits at once.
    """
    current = getattr(torch._C, "_current_autograd_node", None)  # since PyTorch 2.1
    return current is not None and current() is None


_BACKWARD = _Backward()


def ddp_hook(state: Chosen, bucket: Any) -> Any:  # noqa: ANN401
    """Average a bucket of PyTorch's own DistributedDataParallel by our servers.

    Use it with ``ddp.register_comm_hook(None, bps.ddp_hook)``.  Forward does not cross the
    barrier, as DistributedDataParallel waits for all means at the end of backward.

    Parameters
    ----------
    state : Compressor or str, optional
        The form in which buckets travel.
    bucket : GradBucket
        Given by PyTorch.
    """
    tensor = bucket.buffer()
    compression = chosen(state)
    name = f"bucket {bucket.index()}, {tensor.numel()} x {tensor.dtype}, {compression.__name__}"
    # The last bucket has the first layers, which forward uses first.
    call = Call(True, name, bucket.index(), compression)
    sums = current().get().sums
    devices = [tensor.device] if tensor.is_cuda else None  # whose streams wait for the result
    future = torch.futures.Future(devices=devices)
    _BACKWARD.add(_Bucket(sums, sums.start(tensor, call), future))
    return future


# PyTorch compares annotations with classes of its own, which a build may lack; it takes none too.
ddp_hook.__annotations__ = {}

"""PyTorch's own DistributedDataParallel: the hook, and the buckets that `advise` takes for it."""

import random
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest
import torch
import torch.distributed as dist

from bytescheduler._advise import ddp
from bytescheduler.torch._ddp import hook
from bytescheduler.torch._ddp.hook import _Backward, _Bucket
from bytescheduler.torch._sums.compression import Compression


class Sums:
    """See `TensorSums`."""

    def finish(self, number: int) -> torch.Tensor:
        return torch.full((1,), float(number))


def test_a_backward_after_one_that_failed_ends() -> None:
    backward = _Backward()
    sums: Any = Sums()
    futures = [torch.futures.Future() for _ in range(2)]
    for number, future in enumerate(futures):

        def arrived(grad: torch.Tensor) -> None:
            backward.add(_Bucket(sums, number, future))  # noqa: B023
            if number == 0:  # noqa: B023
                raise ArithmeticError("a hook failed")

        weight = torch.ones(1, requires_grad=True)
        weight.register_hook(arrived)
        if number == 0:
            with pytest.raises(ArithmeticError, match="a hook failed"):
                weight.sum().backward()
        else:
            weight.sum().backward()
    assert [float(future.value()) for future in futures] == [0.0, 1.0]


def test_a_bucket_that_comes_at_the_end_of_backward_is_waited_for_at_once() -> None:
    backward = _Backward()
    sums: Any = Sums()
    future = torch.futures.Future()
    done: List[bool] = []

    def at_end() -> None:
        backward.add(_Bucket(sums, 7, future))
        done.append(future.done())  # PyTorch waits for it here, and calls nothing else before

    weight = torch.ones(1, requires_grad=True)
    end = torch.autograd.Variable._execution_engine.queue_callback
    weight.register_hook(lambda grad: end(at_end))
    weight.sum().backward()
    assert done == [True]
    assert float(future.value()) == 7.0


def test_buckets_that_travel_in_another_form_have_other_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Bucket:
        def index(self) -> int:
            return 3

        def buffer(self) -> torch.Tensor:
            return torch.ones(2)

    names: List[Optional[str]] = []
    job: Any = SimpleNamespace()
    job.get = lambda: SimpleNamespace(sums=SimpleNamespace(start=lambda _, c: names.append(c.name)))
    monkeypatch.setattr(hook, "current", lambda: job)
    monkeypatch.setattr(hook, "_BACKWARD", SimpleNamespace(add=lambda bucket: None))
    for state in (None, Compression.none, Compression.fp16, Compression.bf16):
        hook.ddp_hook(state, Bucket())
    assert names[0] == names[1]
    assert len(set(names)) == 3


@pytest.mark.parametrize("seed", range(20))
def test_advise_joins_gradients_as_pytorch_does(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [4 * rng.randrange(1, 3 << 20) for _ in range(rng.randrange(1, 40))]
    first, limit = rng.randrange(1, 9 << 20), rng.randrange(1, 40 << 20)
    tensors = [torch.empty(size // 4, device="meta") for size in sizes]
    joined, _ = dist._compute_bucket_assignment_by_size(tensors, [first, limit])
    assert ddp.buckets(sizes, limit, first) == [len(bucket) for bucket in joined]


def test_advise_has_pytorchs_limit_of_the_first_bucket() -> None:
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == ddp._FIRST_BYTES

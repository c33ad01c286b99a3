"""The hook for PyTorch's own DistributedDataParallel: the end of a backward."""

from typing import Any

import pytest
import torch

from bytescheduler.torch._ddp.hook import _Backward, _Bucket


class Sums:
    """See `NamedSums`."""

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

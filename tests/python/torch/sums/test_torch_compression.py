"""An argument `compression` is a compressor or its name, in every call that takes one."""

import re
from typing import Any, Callable, Dict, Iterator

import pytest
import torch
from inline_snapshot import snapshot

import bytescheduler.torch as bps
from bytescheduler.errors import UsageError
from bytescheduler.torch._sums.compression import Compression, chosen


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_a_name_is_as_good_as_its_compressor(name: str) -> None:
    assert chosen(name) is getattr(Compression, name)
    assert chosen(getattr(Compression, name)) is getattr(Compression, name)


def test_nothing_is_no_compression() -> None:
    assert chosen(None) is Compression.none


def test_a_class_of_a_script_is_taken() -> None:
    class Own(Compression.none):  # type: ignore[misc]
        """Changes nothing."""

    assert chosen(Own) is Own
    two_bit = Compression.two_bit(0.5)
    assert chosen(two_bit) is two_bit


class Foreign:
    """A compressor of another package."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> torch.Tensor:
        return tensor


@pytest.mark.parametrize(
    "value", ["fp8", "FP16", "", 16, True, Compression.two_bit, Compression, Foreign, torch.float16]
)
def test_a_value_that_is_no_compressor_is_told_with_all_compressors(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError) as raised:
        chosen(value)
    text = str(raised.value)
    assert text.startswith("compression=")
    assert re.sub("^compression=.*: want", "want", text) == snapshot(
        "want Compression.none, .fp16, .bf16 or .two_bit(threshold), or a class that is derived "
        "from Compression.none"
    )


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "off")
    bps.init()
    yield
    bps.shutdown()


def optimizer_of(compression: Any) -> object:  # noqa: ANN401
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    return bps.DistributedOptimizer(inner, compression=compression)


CALLS: Dict[str, Callable[[Any], object]] = {
    "DistributedOptimizer": optimizer_of,
    "DistributedDataParallel": lambda value: bps.DistributedDataParallel(
        torch.nn.Linear(2, 2), compression=value
    ),
    "push_pull": lambda value: bps.push_pull(torch.ones(2), compression=value),
    "push_pull_inplace": lambda value: bps.push_pull_inplace(torch.ones(2), compression=value),
    "allreduce": lambda value: bps.allreduce(torch.ones(2), compression=value),
    "grouped_allreduce": lambda value: bps.grouped_allreduce([torch.ones(2)], compression=value),
}


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_names_and_refuses_all_else(call: str) -> None:
    CALLS[call]("fp16")
    with pytest.raises(UsageError, match="compression='float16': want Compression.none, .fp16"):
        CALLS[call]("float16")

"""Calls whose tensors share memory: the results are those of tensors that are apart."""

import random
from typing import Any, Callable, Dict, List, Sequence

import pytest
import torch
from fake_exchanges import Ranks

from bytescheduler.torch._backend.group import Group

SIZE = 3
LENGTH = 4
SEEDS = range(12)
Tensors = List[torch.Tensor]
# Begins a call with input and output tensors, of which each has LENGTH elements.
Call = Callable[[Group, Tensors, Tensors], Any]


def joined(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors follow each other in memory."""
    step = LENGTH * tensors[0].element_size()
    first = tensors[0].data_ptr()
    return all(tensor.data_ptr() == first + at * step for at, tensor in enumerate(tensors))


def whole(tensors: Tensors) -> torch.Tensor:
    """Return one tensor of tensors that follow each other, else a copy of them."""
    if not joined(tensors):
        return torch.cat(tensors)
    return tensors[0].as_strided((len(tensors) * LENGTH,), (1,))


CALLS: Dict[str, Call] = {
    "all_gather": lambda g, ins, outs: g.allgather([outs], [ins[0]]),
    "all_gather_coalesced": lambda g, ins, outs: g.allgather_coalesced(
        [[out] for out in outs], [ins[0]]
    ),
    "gather": lambda g, ins, outs: g.gather([outs] if g.rank() == 1 else [], [ins[0]], 1),
    "scatter": lambda g, ins, outs: g.scatter([outs[0]], [ins] if g.rank() == 1 else [], 1),
    "all_to_all": lambda g, ins, outs: g.alltoall(outs, ins),
    "reduce_scatter": lambda g, ins, outs: g.reduce_scatter([outs[0]], [ins]),
    "reduce_scatter_tensor": lambda g, ins, outs: g.reduce_scatter_single(outs[0], whole(ins)),
    "reduce_scatter_tensor_coalesced": lambda g, ins, outs: g.reduce_scatter_tensor_coalesced(
        [outs[0], outs[1]], [whole(ins), whole(ins)]
    ),
}


def views(random_: random.Random, buffer: torch.Tensor) -> Tensors:
    """Return a view of the buffer for each rank, apart from each other."""
    places = list(range(0, buffer.numel() - LENGTH + 1, LENGTH))
    first = random_.randrange(2)
    chosen = random_.sample(places, SIZE) if first else places[:SIZE]
    shift = random_.choice([0, 0, 2]) if max(chosen) + LENGTH + 2 <= buffer.numel() else 0
    return [buffer[at + shift : at + shift + LENGTH] for at in chosen]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
@pytest.mark.parametrize("name", CALLS)
def test_inputs_may_lie_in_outputs(name: str, dtype: torch.dtype) -> None:
    for seed in SEEDS:
        ranks = Ranks(SIZE, seed=seed)

        def call(rank: int, group: Group, seed: int = seed) -> None:
            random_ = random.Random(100 * seed + rank)
            buffer = torch.arange(16).to(dtype) + 100 * rank
            ins, outs = views(random_, buffer), views(random_, buffer)
            apart_ins = [tensor.clone() for tensor in ins]
            apart_outs = [tensor.clone() for tensor in outs]
            CALLS[name](group, apart_ins, apart_outs).wait()
            CALLS[name](group, ins, outs).wait()
            written = {"scatter": 1, "reduce_scatter": 1, "reduce_scatter_tensor": 1}.get(name, 3)
            for got, expected in zip(outs[:written], apart_outs):
                is_written = name != "gather" or rank == 1
                assert not is_written or torch.equal(got, expected), (seed, ins, outs, expected)

        ranks.well(call)
        ranks.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_tensors_of_one_call_may_be_the_same_or_overlap(dtype: torch.dtype) -> None:
    for seed in SEEDS:
        ranks = Ranks(SIZE, seed=seed)

        def call(rank: int, group: Group) -> None:
            buffer = torch.arange(8).to(dtype) + rank
            group.allreduce_coalesced([buffer, buffer, buffer[:5], buffer[3:]]).wait()
            assert torch.equal(buffer, (torch.arange(8) * SIZE + 3).to(dtype))
            buffer = torch.arange(8).to(dtype) + rank
            group.broadcast([buffer, buffer, buffer[2:6]], 2).wait()
            assert torch.equal(buffer, torch.arange(8).to(dtype) + 2)

        ranks.well(call)
        ranks.close()


@pytest.mark.parametrize("view", [torch.Tensor.t, torch.conj, torch.Tensor.imag.__get__])
def test_an_input_may_read_its_output_s_memory_otherwise(
    view: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """A view may be transposed, conjugated, or a part of each element."""

    def call(rank: int, group: Group) -> None:
        values = torch.arange(4.0).reshape(2, 2)
        own = torch.complex(values, values + 10 * (rank + 1))
        source = view(own)
        expected = [torch.empty_like(source) for _ in range(2)]
        group.allgather([expected], [source.clone()]).wait()
        outputs = [torch.zeros_like(source) for _ in range(2)]
        outputs[rank] = own if source.dtype == own.dtype else own.real
        group.allgather([outputs], [source]).wait()
        assert all(torch.equal(got, wanted) for got, wanted in zip(outputs, expected))

    ranks = Ranks(2, seed=1)
    ranks.well(call)
    ranks.close()


def test_a_gather_in_place_copies_nothing() -> None:
    ranks = Ranks(2)
    group = ranks.group(0)
    output = torch.zeros(2, 50_000)
    group.all_gather_single(output, output[0])
    begin = output.data_ptr()
    addresses = {
        address
        for meeting in ranks.job.rounds.values()
        for pending in meeting.pendings.values()
        for address in (pending.exchange.send, pending.exchange.receive)
    }
    assert addresses <= {0, begin, begin + 200_000}
    ranks.close()

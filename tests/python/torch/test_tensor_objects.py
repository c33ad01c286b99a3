"""Tensors of one worker reach another one, whatever PyTorch's default device is."""

import ctypes
import types
from typing import Any, List, Sequence, Tuple

import pytest
import torch
from fake_job import FakeSession

from bytescheduler._session.relay import Relay
from bytescheduler._session.view import View
from bytescheduler.torch._api import broadcast
from bytescheduler.torch._sums.objects import TensorObjects
from bytescheduler.torch._sums.octets import digest_of, has_octets


class Relaying(FakeSession):
    """Keeps what worker 0 sends, and gives it to worker 1 later."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: List[bytes] = []

    def broadcast_from(
        self, root: int, memory: Sequence[Tuple[int, int, int]], *, owner: object
    ) -> None:
        for _, address, size in memory:
            if self.rank == root:
                self.kept.append(ctypes.string_at(address, size))
            else:
                ctypes.memmove(address, self.kept.pop(0), size)


class OfTwo:
    """The job of two workers, as worker `rank` sees it."""

    def __init__(self, rank: int) -> None:
        self.view = View(epoch=0, rank=rank, hosts=(0, 0), num_servers=1)


def test_a_default_device_changes_nothing() -> None:
    session: Any = Relaying()
    numbers = torch.arange(4.0), torch.zeros(4)
    with torch.device("meta"):
        for session.rank, tensor in enumerate(numbers):
            TensorObjects(Relay(session), OfTwo(session.rank)).overwrite([tensor], 0)
    assert numbers[1].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert not session.kept


def test_a_conjugate_tensor_gets_the_values_of_the_other_worker() -> None:
    session: Any = Relaying()
    numbers = torch.tensor([1 + 2j, 3 - 1j]), torch.zeros(2, dtype=torch.complex64)
    for rank, tensor in enumerate(numbers):
        session.rank = rank
        TensorObjects(Relay(session), OfTwo(rank)).overwrite([tensor.conj(), tensor.imag], 0)
    assert torch.equal(numbers[0], numbers[1])


def test_nor_does_one_change_the_state_of_an_optimizer_that_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session: Any = Relaying()
    job = types.SimpleNamespace(rank=0, size=2)
    monkeypatch.setattr(broadcast, "current", lambda: types.SimpleNamespace(get=lambda: job))
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    theirs, mine = (torch.optim.SGD([param], 0.5, momentum=0.9) for param in params)
    params[0].grad = torch.full((3,), 2.0)
    theirs.step()
    with torch.device("meta"):
        for job.rank, inner in enumerate((theirs, mine)):
            session.rank = job.rank
            job.objects = TensorObjects(Relay(session), OfTwo(job.rank))
            broadcast.broadcast_optimizer_state(inner, 0)
    assert mine.state[params[1]]["momentum_buffer"].tolist() == [2.0] * 3


# -- digests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
def test_a_digest_sees_each_bit_and_no_stride(kind: torch.dtype) -> None:
    tensor = torch.arange(12.0).view(3, 4).gt(5).to(kind)
    assert digest_of(tensor) == digest_of(tensor.clone())
    assert digest_of(tensor.t().contiguous().t()) == digest_of(tensor)
    assert digest_of(tensor.t()) != digest_of(tensor)
    changed = tensor.clone()
    changed[2, 3] = 0
    assert digest_of(changed) != digest_of(tensor)


def test_digests_are_of_bytes_dtype_and_shape() -> None:
    zero, minus = torch.tensor(0.0), torch.tensor(-0.0)
    one, another = (torch.tensor(0x7FC00000 + n).int().view(torch.float32) for n in range(2))
    empty = torch.zeros(0, 3)
    tensors = [
        *(zero, minus, one, another, empty, empty.t(), zero.to(torch.bfloat16), zero.view(1)),
        *(torch.eye(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2)),
    ]
    digests = [digest_of(tensor) for tensor in tensors]
    assert len(set(digests)) == len(tensors)
    conjugate = torch.tensor([1 + 2j]).conj()
    assert digest_of(conjugate) == digest_of(conjugate.resolve_conj())
    assert digest_of(torch.nn.Parameter(zero)) == digest_of(zero)
    assert not has_octets(torch.nn.parameter.UninitializedParameter())


class OneSum:
    """See `TensorSums`: the other worker sends what `others` has."""

    def __init__(self, others: "List[List[int]]") -> None:
        self.others = others
        self.names: List[str] = []

    def start(self, tensor: torch.Tensor, call: Any) -> int:  # noqa: ANN401
        assert not call.average
        self.names.append(call.name)
        others = self.others.pop(0)
        self._total = tensor + torch.tensor(others + [0] * (len(tensor) - len(others))).int()
        return 7

    def finish(self, number: int) -> torch.Tensor:
        return self._total


def test_only_tensors_that_differ_on_some_worker_travel() -> None:
    session: Any = Relaying()
    values = torch.arange(4.0), torch.zeros(2), torch.full((3,), 5.0), torch.ones(1)
    # The second tensor differs here, and the third one on a further worker.
    mine = torch.arange(4.0), torch.ones(2), torch.full((3,), 5.0), torch.ones(1)
    named = [list(zip("abcd", tensors)) for tensors in (values, mine)]
    before = [tensor._version for tensor in mine]
    for rank, others in enumerate(([0, 1, 1, 0], [0, 0, 1, 0])):
        session.rank = rank
        sums: Any = OneSum([others])
        TensorObjects(Relay(session), OfTwo(rank), sums).broadcast_tensors(named[rank], 0)
        assert sums.names == ["workers whose tensors differ, 64"]
    assert not session.kept
    assert all(map(torch.equal, values, mine))
    changes = [tensor._version - version for tensor, version in zip(mine, before)]
    assert [bool(count) for count in changes] == [False, True, True, False]
    assert [tensor._version for tensor in values] == [0, 0, 0, 0]


def test_equal_values_are_not_gathered() -> None:
    session: Any = Relaying()
    sums: Any = OneSum([])
    objects = TensorObjects(Relay(session), OfTwo(0), sums)
    told: List[List[int]] = []
    sums.start = lambda tensor, call: told.append(tensor.tolist())
    sums.finish = lambda number: 2 * torch.tensor(told[-1])
    assert objects.gather_unequal({"a": 1}) == []
    assert all(0 <= half < 1 << 16 for half in told[0])
    sums.finish = lambda number: 2 * torch.tensor(told[-1]) + 1
    objects.gather = lambda value: [value, "another"]  # type: ignore[method-assign]
    assert objects.gather_unequal({"a": 1}) == [{"a": 1}, "another"]
    assert told[0] == told[1]
    objects.gather_unequal({"a": 2})
    assert told[2] != told[1]

"""Shards of tensors, keys and labels."""

import torch

from bytescheduler.torch._backend.labels import label_of, tensors_text
from bytescheduler.torch._backend.members import Members
from bytescheduler.torch._backend.plan import shards


def test_shards_hold_each_element_once() -> None:
    for size in (1, 2, 3, 7):
        for numel in (0, 1, 4095, 4097, 5000, 100_003):
            bounds = [bound for _, bound in shards(numel, size, 4, size - 1)]
            assert [at for first, end in bounds for at in range(first, end)] == list(range(numel))
            owners = [owner for owner, _ in shards(numel, size, 4, size - 1)]
            assert sorted(set(owners)) == owners


def test_small_tensors_lie_with_each_rank_in_turn() -> None:
    assert shards(10, 3, 4, 2) == [(2, (0, 10))]


def test_keys_differ_by_group_number_and_slot() -> None:
    first, second = (Members("a", name, (0, 1), 0) for name in ("token 0", "token 1"))
    keys = {
        members.key(number, slot)
        for members in (first, second)
        for number in range(20)
        for slot in ((), (0, 1), (1, 0), (-1, 0, 1, 0))
    }
    assert len(keys) == 2 * 20 * 4
    assert first.key(3, (0, 1)) == Members("b", "token 0", (5, 6), 1).key(3, (0, 1))


def test_labels_count_equal_tensors_and_end_in_a_digest() -> None:
    tensors = [torch.ones(2, 3)] * 4 + [torch.ones(()).long()]
    assert tensors_text(tensors) == "4 of float32 [2, 3], int64 []"
    assert label_of(["all_reduce #1", "", "float32 [1]"]) == "all_reduce #1, float32 [1]"
    long = [label_of(["broadcast", "ü" * 150 + end]) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(text.encode()) <= 200 for text in long)

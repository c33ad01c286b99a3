"""Shards of tensors, and labels."""

import torch

from bytescheduler.torch._backend.labels import label_of, tensors_text
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


def test_labels_count_equal_tensors_and_end_in_a_digest() -> None:
    tensors = [torch.ones(2, 3)] * 4 + [torch.ones(()).long()]
    assert tensors_text(tensors) == "4 of float32 [2, 3], int64 []"
    assert label_of(["all_reduce #1", "", "float32 [1]"]) == "all_reduce #1, float32 [1]"
    long = [label_of(["broadcast", "ü" * 150 + end]) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(text.encode()) <= 200 for text in long)

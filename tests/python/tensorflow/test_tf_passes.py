"""Sums of gradients of several passes, in a process alone."""

from typing import Any, Callable, List

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf  # noqa: E402

from bytescheduler.errors import UsageError  # noqa: E402
from bytescheduler.tensorflow._gradients.passes import Passes  # noqa: E402


def numbers(values: List[Any]) -> List[Any]:
    return [None if value is None else float(value) for value in values]


def adder(passes: Passes, updates: List[Any]) -> Callable[..., None]:
    def add(gradients: List[Any], variables: List[Any]) -> None:
        tensors = [None if g is None else tf.constant(float(g)) for g in gradients]
        passes.add(tensors, variables, lambda sums: updates.append(numbers(sums)))

    return add


def test_a_gradient_that_is_missing_at_first_counts_later() -> None:
    updates: List[Any] = []
    add = adder(Passes(2, is_mean=False), updates)
    variables = [tf.Variable(0.0) for _ in range(3)]
    for gradients in ([1, None, None], [2, 3, None], [4, None, None], [5, 6, None]):
        add(gradients, variables)
    assert updates == [[3.0, 3.0, None], [9.0, 6.0, None]]


def test_each_list_of_variables_has_its_own_sums() -> None:
    updates: List[Any] = []
    add = adder(Passes(2, is_mean=True), updates)
    first, second, third = (tf.Variable(0.0) for _ in range(3))
    for _ in range(2):
        add([1, 2], [first, second])
        add([3, 4, 5], [third, second, first])
        add([7], [third])
    assert updates == [[1.0, 2.0], [3.0, 4.0, 5.0], [7.0]]


def test_a_gradient_that_an_earlier_graph_leaves_out_is_refused() -> None:
    passes = Passes(2, is_mean=False)
    variables = [tf.Variable(0.0, name="late"), tf.Variable(0.0)]

    @tf.function
    def step(*, has_late: bool) -> None:
        gradients = [tf.constant(1.0) if has_late else None, tf.constant(1.0)]
        passes.add(gradients, variables, lambda sums: None)

    step(has_late=False)
    with pytest.raises(UsageError, match="'late:0' has a gradient now, and had none"):
        step(has_late=True)

"""The argument grammar of MXNet's stores."""

import mxnet as mx
import pytest

from bytescheduler.mxnet._stores.arguments import group

A, B, C = (mx.nd.zeros((1,)) for _ in range(3))


def ids(groups: "dict[object, list[object]]") -> "list[tuple[object, list[int]]]":
    return [(key, [id(array) for array in arrays]) for key, arrays in groups.items()]


@pytest.mark.parametrize(
    ("keys", "values", "want"),
    [
        (3, A, {3: [A]}),
        ("w", A, {"w": [A]}),
        (3, [A, B], {3: [A, B]}),
        (3, (A, A), {3: [A, A]}),
        (3, [], {3: []}),
        ([3], [A], {3: [A]}),
        ((5, 3), (A, B), {5: [A], 3: [B]}),
        ([3, 5], [[A, B], C], {3: [A, B], 5: [C]}),
        ([3, 5, 3], [A, B, C], {3: [A, C], 5: [B]}),
        ([[1, 2], 3], [[A, B], C], {1: [A], 2: [B], 3: [C]}),
        ([], [], {}),
    ],
)
def test_arrays_are_grouped_by_key_in_the_order_given(
    keys: object, values: object, want: "dict[object, list[object]]"
) -> None:
    assert ids(group(keys, values)) == ids(want)


@pytest.mark.parametrize(
    ("keys", "values", "kind"),
    [
        ([1, 2], [A], AssertionError),
        (1.5, A, AssertionError),
        (None, A, AssertionError),
        ([1, "a"], [A, B], AssertionError),
        (1, [A, 2.0], AssertionError),
        (1, [[A]], AssertionError),
        (1, 2.0, TypeError),
        (1, None, TypeError),
    ],
)
def test_keys_and_values_outside_the_grammar_are_refused(
    keys: object, values: object, kind: "type[Exception]"
) -> None:
    with pytest.raises(kind):
        group(keys, values)


def test_numpy_arrays_become_arrays_that_operators_take() -> None:
    array = mx.np.ones((2,))
    (legacy,) = group(1, array)[1]
    assert type(legacy) is mx.nd.NDArray
    legacy[:] = 3
    assert array.tolist() == [3, 3]

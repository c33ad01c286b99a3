"""Copies by MXNet's engine, and the short way of the usual push-pull, over a fake engine."""

from typing import List, Tuple

import mxnet as mx
import numpy as np
import pytest
from fakes import FakePlugin, full

from bytescheduler.errors import UsageError
from bytescheduler.mxnet._copier import open_copier
from bytescheduler.mxnet._native_store import NativeStore


def handle(array: mx.nd.NDArray) -> int:
    return int(array.handle.value)


@pytest.fixture
def exchanges(plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch) -> "List[int]":
    """Return the keys that go the short way."""
    seen: List[int] = []
    exchange = plugin.exchange

    def noting(copier: object, rounds: object, *rest: int) -> None:
        seen.append(rounds.key)  # type: ignore[attr-defined]
        exchange(copier, rounds, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(plugin, "exchange", noting)
    return seen


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (3, 1, 2, 2)])
def test_a_copy_is_a_copy(dtype: str, shape: "Tuple[int, ...]") -> None:
    copier = open_copier()
    source = mx.nd.array(np.arange(np.prod(shape)).reshape(shape), dtype=dtype)
    target = mx.nd.zeros(shape, dtype=dtype)
    assert copier.fits(handle(source), handle(target))
    copier.copy(handle(source), handle(target))
    np.testing.assert_array_equal(target.asnumpy(), source.asnumpy())
    source[:] = 0
    assert target.asnumpy().any() or shape == (1,)


@pytest.mark.parametrize(
    "other",
    [
        mx.nd.zeros((3, 2)),
        mx.nd.zeros((2, 3), dtype="float64"),
        mx.nd.zeros((2, 3)).tostype("row_sparse"),
        mx.nd.zeros((2, 3)).tostype("csr"),
    ],
)
def test_what_is_not_alike_does_not_fit(other: mx.nd.NDArray) -> None:
    copier = open_copier()
    assert not copier.fits(handle(other), handle(full(0)))
    assert not copier.fits(handle(full(0)), handle(other))


def test_copies_and_other_operations_keep_their_order() -> None:
    copier = open_copier()
    a, b = mx.nd.zeros((1000, 100)), mx.nd.zeros((1000, 100))
    for step in range(1, 30):
        a[:] = step  # behind the copy of the step before
        copier.copy(handle(a), handle(b), -step)
        a[:] = -1
        b += 1
        assert (b.asnumpy() == step + 1).all()


def test_an_array_in_a_layout_of_mxnets_own_is_copied_by_value() -> None:
    convolution = mx.gluon.nn.Conv2D(32, 3, in_channels=16)
    convolution.initialize(mx.init.Uniform(1))
    weight = convolution.weight.data()
    want = weight.asnumpy().copy()
    convolution(mx.nd.ones((2, 16, 8, 8))).wait_to_read()  # inference may block the weights
    copier, got = open_copier(), mx.nd.zeros(weight.shape)
    copier.copy(handle(weight), handle(got))
    np.testing.assert_array_equal(got.asnumpy(), want)
    twice = got * 2
    copier.copy(handle(twice), handle(weight))
    np.testing.assert_array_equal(weight.asnumpy(), want * 2)


def test_a_copier_opens_once() -> None:
    copier = open_copier()
    with pytest.raises(UsageError, match="the copier is open already"):
        copier.__init__({})  # type: ignore[misc]


def test_one_fitting_array_for_each_key_goes_the_short_way(
    store: NativeStore, plugin: FakePlugin, exchanges: "List[int]"
) -> None:
    plugin.factor = 2
    store.init([9, 4, 6], [full(0)] * 3)
    values, outs = [full(n) for n in (1, 2, 3)], [full(0) for _ in range(3)]
    store.pushpull([6, 9, 4], [[values[0]], values[1], (values[2],)], outs, 5)
    assert exchanges == [4, 6, 9]
    assert [call[2] for call in plugin.calls] == [5, 5, 5]
    assert [out.asnumpy()[0, 0] for out in outs] == [2, 4, 6]
    store.pushpull(9, values[0], None, 0)  # in place
    assert values[0].asnumpy()[0, 0] == 2
    store.pull(9, outs[0], 0, True)
    assert outs[0].asnumpy()[0, 0] == 2
    assert exchanges == [4, 6, 9, 9]


def test_mx_np_arrays_views_and_recorded_code_go_the_short_way(
    store: NativeStore, exchanges: "List[int]"
) -> None:
    store.init(1, full(0, (3,)))
    with mx.autograd.record():
        whole = full(0, (4, 3))
        store.pushpull(1, mx.np.ones((3,)), whole[2], 0)
    np.testing.assert_array_equal(whole.asnumpy(), [[0] * 3, [0] * 3, [1] * 3, [0] * 3])
    assert exchanges == [1]


def test_everything_else_goes_the_long_way(
    store: NativeStore, plugin: FakePlugin, exchanges: "List[int]"
) -> None:
    store.init([1, 2, 3], [full(0)] * 3)
    out = full(0)
    store.pushpull(1, [full(1), full(2)], out, 0)  # two devices
    assert out.asnumpy()[0, 0] == 3
    store.pushpull([2, 2], [full(4), full(5)], [out, out], 0)  # as much in other words
    assert out.asnumpy()[0, 0] == 9
    wide = full(0).astype("float64")
    store.pushpull(1, full(6), wide, 0)  # a cast
    assert wide.asnumpy()[0, 0] == 6
    store.pushpull([[1, 2]], [[full(7), full(8)]], [[full(0), out]], 0)  # nested
    assert out.asnumpy()[0, 0] == 8
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.pushpull(1, full(1), out, 0)
    assert plugin.thresholds[-1] == 0.5
    assert exchanges == []


def test_with_an_updater_or_rows_it_is_the_long_way(
    store: NativeStore, exchanges: "List[int]"
) -> None:
    store.init([1, 2], [full(1), full(0)])
    store.push(2, full(3).tostype("row_sparse"), 0)
    out = full(0)
    store.pushpull(2, full(4), out, 0)
    assert out.asnumpy()[0, 0] == 4
    store.set_updater(lambda key, received, stored: stored.__iadd__(received))
    store.pushpull(1, full(5), out, 0)
    assert out.asnumpy()[0, 0] == 6
    assert exchanges == []


def test_bad_arguments_send_nothing_though_the_first_are_good(
    store: NativeStore, plugin: FakePlugin, exchanges: "List[int]"
) -> None:
    store.init([1, 2], [full(0)] * 2)
    for keys, values, outs, error in [
        ([1, 2], [full(1)], [full(0)], AssertionError),
        ([1, 2], [full(1), full(1, (3, 2))], None, mx.base.MXNetError),
        ([1, 2], [full(1), full(1)], [full(0), full(0, (7,))], mx.base.MXNetError),
        ([1, 5], [full(1), full(1)], None, mx.base.MXNetError),
        (1, 3, None, TypeError),
        ([1, "a"], [full(1), full(1)], None, AssertionError),
    ]:
        with pytest.raises(error):
            store.pushpull(keys, values, outs, 0)
    assert plugin.calls == []
    assert exchanges == []

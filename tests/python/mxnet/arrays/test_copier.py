"""Copies by MXNet's engine, and the short way of the usual push-pull, in a real job of one."""

from typing import Iterator, List, Tuple

import mxnet as mx
import numpy as np
import pytest
from fakes import full
from roles import role

from bytescheduler._core import MXNetCopier, Node, Worker
from bytescheduler.errors import UsageError
from bytescheduler.mxnet import _functions
from bytescheduler.mxnet._functions import open_copier, open_plugin
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore


def handle(array: mx.nd.NDArray) -> int:
    return int(array.handle.value)


class NotingSession(TensorSession):
    """Notes which way calls go."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker, open_plugin(worker))
        self.short: List[bool] = []

    def exchange(self, *arguments: object) -> bool:
        self.short.append(super().exchange(*arguments))  # type: ignore[arg-type]
        return self.short[-1]


@pytest.fixture
def session() -> "Iterator[NotingSession]":
    scheduler = Node.start(role("scheduler", 0, workers=1))
    server = Node.start(role("server", scheduler.port, workers=1))
    session = NotingSession(Worker.open(role("worker", scheduler.port, workers=1)))
    yield session
    session.close()
    server.close()
    scheduler.close()


@pytest.fixture
def store(session: NotingSession) -> NativeStore:
    return NativeStore(session)


@pytest.fixture(params=["shown", "hidden"])
def copier(request: pytest.FixtureRequest) -> MXNetCopier:
    """Of an MXNet that shows the function which copies, and of one that does not."""
    functions = _functions._functions()
    assert functions["copy_array"] != 0
    if request.param == "hidden":
        functions["copy_array"] = 0
    return MXNetCopier(functions, mx.nd.NDArray)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64"])
@pytest.mark.parametrize("shape", [(1,), (2, 3), (3, 1, 2, 2)])
def test_a_copy_is_a_copy(copier: MXNetCopier, dtype: str, shape: "Tuple[int, ...]") -> None:
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
def test_an_array_of_another_shape_dtype_or_storage_does_not_fit(other: mx.nd.NDArray) -> None:
    copier = open_copier()
    assert not copier.fits(handle(other), handle(full(0)))
    assert not copier.fits(handle(full(0)), handle(other))


def test_copies_and_other_operations_keep_their_order(copier: MXNetCopier) -> None:
    a, b = mx.nd.zeros((1000, 100)), mx.nd.zeros((1000, 100))
    for step in range(1, 30):
        a[:] = step  # behind the copy of the step before
        copier.copy(handle(a), handle(b), -step)
        a[:] = -1
        b += 1
        assert (b.asnumpy() == step + 1).all()


def test_a_copy_keeps_the_memory_of_both_arrays(copier: MXNetCopier) -> None:
    gone, got = mx.nd.ones((1000, 100)), mx.nd.zeros((1000, 100))
    for step in range(1, 20):
        source = gone * step
        copier.copy(handle(source), handle(got))
        del source
        gone.copy()  # has what the source had, if that is free
        assert (got.asnumpy() == step).all()
    between = mx.nd.zeros((1000, 100))
    copier.copy(handle(got), handle(between))
    copier.copy(handle(between), handle(gone))
    del between, got
    assert (gone.asnumpy() == step).all()


def test_an_array_in_a_layout_of_mxnets_own_is_copied_by_value(copier: MXNetCopier) -> None:
    convolution = mx.gluon.nn.Conv2D(32, 3, in_channels=16)
    convolution.initialize(mx.init.Uniform(1))
    weight = convolution.weight.data()
    want = weight.asnumpy().copy()
    convolution(mx.nd.ones((2, 16, 8, 8))).wait_to_read()  # inference may block the weights
    got = mx.nd.zeros(weight.shape)
    copier.copy(handle(weight), handle(got))
    np.testing.assert_array_equal(got.asnumpy(), want)
    twice = got * 2
    copier.copy(handle(twice), handle(weight))
    np.testing.assert_array_equal(weight.asnumpy(), want * 2)


def test_a_copier_opens_once() -> None:
    copier = open_copier()
    with pytest.raises(UsageError, match="the copier is open already"):
        copier.__init__({}, mx.nd.NDArray)  # type: ignore[misc]


def test_one_fitting_array_for_each_key_goes_the_short_way(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([9, 4, 6], [full(7)] * 3)
    values, outs = [full(n) for n in (1, 2, 3)], [full(0) for _ in range(3)]
    store.pushpull([6, 9, 4], [[values[0]], values[1], (values[2],)], outs, 5)
    assert [out.asnumpy()[0, 0] for out in outs] == [1, 2, 3]
    values[0][:] = 8
    store.pushpull(9, values[0], None, -(2**40))  # in place
    values[1][:] = 0
    store.pull(9, values[1], 0, True)
    assert values[0].asnumpy()[0, 0] == values[1].asnumpy()[0, 0] == 8
    assert session.short == [True, True]


def test_one_call_needs_no_wait_before_the_next(store: NativeStore, session: NotingSession) -> None:
    store.init("a", full(0))
    value, out = full(0), full(0)
    for _ in range(20):
        value += 1  # behind the copy of the call before
        store.pushpull("a", value, out, 0)
        value += out
    assert value.asnumpy()[0, 0] == 2.0**21 - 2
    assert all(session.short)


@pytest.mark.parametrize("floats", [1, 16 * 1024, 16 * 1024 + 1])
def test_one_operation_or_two_give_the_same(
    store: NativeStore, session: NotingSession, floats: int
) -> None:
    store.init(1, full(0, (floats,)))
    value, out = mx.nd.arange(floats), full(0, (floats,))
    for _ in range(2):
        store.pushpull(1, value, out, 0)
        np.testing.assert_array_equal(out.asnumpy(), value.asnumpy())
        value += 1
    # What is neither copied for its round nor sent from where it lies wants a stage first.
    assert session.short == [floats <= 16 * 1024, True]


def test_a_key_that_is_only_exchanged_has_no_stage_to_send_from(store: NativeStore) -> None:
    store.init([1, 2], [full(0), full(0)])
    store.pushpull([1, 2], [full(3), full(4)], None, 0)
    assert [store._tensors[key].rounds.send for key in (1, 2)] == [0, 0]
    store.push(1, full(5), 0)
    assert store._tensors[1].rounds.send != 0


def test_mx_np_arrays_views_and_recorded_code_go_the_short_way(
    store: NativeStore, session: NotingSession
) -> None:
    store.init(1, full(0, (3,)))
    with mx.autograd.record():
        whole = full(0, (4, 3))
        store.pushpull(1, mx.np.ones((3,)), whole[2], 0)
    np.testing.assert_array_equal(whole.asnumpy(), [[0] * 3, [0] * 3, [1] * 3, [0] * 3])
    assert session.short == [True]


def test_everything_else_goes_the_long_way(store: NativeStore, session: NotingSession) -> None:
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
    assert session.short == [False] * 4


@pytest.mark.parametrize("widened", [False, True])
def test_half_precision_that_is_widened_goes_the_long_way(
    store: NativeStore, session: NotingSession, widened: bool
) -> None:
    if widened:
        store._is_wide = True
    store.init(1, full(0).astype("float16"))
    out = full(0).astype("float16")
    store.pushpull(1, full(3).astype("float16"), out, 0)
    assert out.asnumpy()[0, 0] == 3
    assert session.short == [not widened]


def test_the_first_call_that_must_widen_other_keys_goes_the_long_way(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([1, 2], [full(0), full(0).astype("float16")])
    store.set_optimizer(mx.optimizer.Test(multi_precision=True))
    assert store._tensors[2].is_narrow
    for _ in range(2):
        store.pushpull(1, full(3), full(0), 0)
    assert not store._tensors[2].is_narrow  # whatever each worker gave, all have widened it now
    assert session.short == [True]


def test_compression_rows_and_updaters_go_the_long_way(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([1, 2, 3], [full(1), full(0), full(0)])
    store.push(2, full(3).tostype("row_sparse"), 0)
    out = full(0)
    store.pushpull(2, full(4), out, 0)
    assert out.asnumpy()[0, 0] == 4
    store.pushpull(3, full(4), out, 0)
    assert session.short == [False, True]
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.pushpull(3, full(9), out, 0)
    assert out.asnumpy()[0, 0] == 0.5
    store.set_updater(lambda key, received, stored: stored.__iadd__(received))
    store.pushpull(1, full(5), out, 0)
    assert out.asnumpy()[0, 0] == 1.5
    assert session.short == [False, True, False, False]


def test_an_updater_of_dense_keys_goes_the_short_way_in_the_order_of_the_keys(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([9, 4], [full(1), full(10)])
    keys: List[int] = []

    def add(key: int, received: mx.nd.NDArray, stored: mx.nd.NDArray) -> None:
        keys.append(key)
        stored += received

    store.set_updater(add)
    outs = [full(0), full(0)]
    store.pushpull([9, 4], [full(2), [full(3)]], [outs[0], [outs[1]]], 0)
    assert keys == [4, 9]
    assert [out.asnumpy()[0, 0] for out in outs] == [3, 13]
    store.init(6, full(5))
    value = full(7)
    with mx.autograd.record():
        store.pushpull(6, value, None, 0)
    assert value.asnumpy()[0, 0] == 12
    assert session.short == [True, True]
    store.push(6, full(1).tostype("row_sparse"), 0)
    store.pushpull(6, full(1), value, 0)
    assert value.asnumpy()[0, 0] == 14
    assert session.short == [True, True, False]


def test_an_error_of_an_updater_comes_behind_all_pushes(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([1, 2], [full(0)] * 2)
    store.set_updater(lambda key, received, stored: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.pushpull([1, 2], [full(3), full(4)], None, 0)
    assert session.short == [True]
    assert [store._tensors[key].recv.asnumpy()[0, 0] for key in (1, 2)] == [3, 4]


def test_bad_arguments_send_nothing_though_the_first_are_good(
    store: NativeStore, session: NotingSession
) -> None:
    store.init([1, 2], [full(7)] * 2)
    bad = mx.base.MXNetError
    for keys, values, outs, error in [
        ([1, 2], [full(1)], [full(0)], AssertionError),
        ([1, 2], [full(1), full(1, (3, 2))], None, bad),
        ([1, 2], [full(1), full(1)], [full(0), full(0, (7,))], bad),
        ([1, 5], [full(1), full(1)], None, bad),
        (1, 3, None, TypeError),
        (1, mx.sym.Variable("x"), None, (AssertionError, TypeError, NotImplementedError)),
        (1, full(1), mx.kv.create("local"), (AssertionError, TypeError)),
        ([1, "a"], [full(1), full(1)], None, AssertionError),
    ]:
        with pytest.raises(error):
            store.pushpull(keys, values, outs, 0)
    out = full(0)
    store.pull(1, out, 0, True)
    assert out.asnumpy()[0, 0] == 7
    assert not any(session.short)


def test_a_call_after_the_end_says_so(store: NativeStore, session: NotingSession) -> None:
    store.init(1, full(0))
    session.close()
    with pytest.raises(mx.base.MXNetError, match="the store was closed"):
        store.pushpull(1, full(1), None, 0)

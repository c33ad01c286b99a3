"""What is sent from where it lies, in a real job of one: whose sum is what was pushed."""

import contextlib
import ctypes
import gc
import threading
from typing import Iterator

import mxnet as mx
import numpy as np
import pytest
from fakes import full, own_bytes
from mxnet.base import _LIB, check_call
from roles import role

from bytescheduler._core import Node, Worker
from bytescheduler.mxnet import _functions
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore

SMALL, LARGE = 1024, 32 * 1024  # floats: what is copied for its round, and more
SMALL_MOST = 16 * 1024


@pytest.fixture(params=[True, False], ids=["in_place", "staged"])
def store(request: pytest.FixtureRequest) -> "Iterator[NativeStore]":
    scheduler = Node.start(role("scheduler", 0, workers=1))
    server = Node.start(role("server", scheduler.port, workers=1))
    worker = Worker.open(role("worker", scheduler.port, workers=1))
    session = TensorSession(worker, _functions.open_plugin(worker, in_place=request.param))
    yield NativeStore(session)
    session.close()
    server.close()
    scheduler.close()


def test_this_mxnet_shows_the_function_that_makes_arrays_plain() -> None:
    assert _functions._functions()["make_plain"] != 0


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_a_write_behind_a_push_is_not_in_its_sum(store: NativeStore, floats: int) -> None:
    store.init(1, full(0, (floats,)))
    value, out = full(0, (floats,)), full(0, (floats,))
    for step in range(1, 40):
        value[:] = step
        store.pushpull(1, value, out, 0)
        value[:] = -1
        assert (out.asnumpy() == step).all()


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_a_push_reads_its_array_behind_all_earlier_operations(
    store: NativeStore, floats: int
) -> None:
    store.init(1, full(0, (floats,)))
    value, out = full(1, (floats,)), full(0, (floats,))
    for _ in range(10):
        value += value
        store.pushpull(1, value, out, 0)
        value += out  # the sum, which waits for nobody here
    mx.nd.waitall()
    assert (value.asnumpy() == 4.0**10).all()


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_a_dropped_array_is_still_sent(store: NativeStore, floats: int) -> None:
    store.init(1, full(0, (floats,)))
    out = full(0, (floats,))
    for step in range(20):
        store.pushpull(1, mx.nd.full((floats,), step), out, 0)
        gc.collect()
        others = [mx.nd.full((floats,), -1) for _ in range(4)]  # which may get its memory
        assert (out.asnumpy() == step).all()
        del others


def test_a_sum_may_be_received_into_a_dropped_array(store: NativeStore) -> None:
    store.init(1, full(0, (SMALL,)))
    out = full(0, (SMALL,))
    for step in range(5):
        store.pushpull(1, full(step, (SMALL,)), full(0, (SMALL,)), 0)
        gc.collect()
        others = [mx.nd.full((SMALL,), -1) for _ in range(4)]  # which may get its memory
        store.pull(1, out, 0, True)
        assert (out.asnumpy() == step).all()
        assert all((other.asnumpy() == -1).all() for other in others)


@contextlib.contextmanager
def in_use(array: mx.nd.NDArray) -> "Iterator[None]":
    """Let an operation of MXNet's engine write `array` until the block ends."""
    over = threading.Event()
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: over.wait(60))
    cpu, prioritized = (ctypes.c_int * 2)(1, 0), ctypes.c_int(3)
    handle = ctypes.byref(array.handle)
    check_call(
        _LIB.MXEnginePushSyncND(
            wait, None, None, cpu, None, 0, handle, 1, ctypes.byref(prioritized), 0, b"in use"
        )
    )
    try:
        yield
    finally:
        over.set()
        array.wait_to_read()  # or `wait` would go while it runs


def test_no_operation_waits_for_the_array_of_another_sum(store: NativeStore) -> None:
    store.init([1, 2], [full(0, (SMALL,)), full(0, (SMALL,))])
    value, busy, out = full(3, (SMALL,)), full(0, (SMALL,)), full(0, (SMALL,))
    mx.nd.waitall()
    with in_use(busy):
        store.pushpull(1, value, busy, 0)
        value[:] = 4
        assert (value.asnumpy() == 4).all()
        store.pull(1, out, 0, True)
        assert (out.asnumpy() == 3).all()
        store.pushpull(2, value, out, 0)
        assert (out.asnumpy() == 4).all()
    assert (busy.asnumpy() == 3).all()


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_a_sum_may_go_where_the_push_came_from(store: NativeStore, floats: int) -> None:
    store.init(1, full(0, (floats,)))
    value = mx.nd.arange(floats)
    for _ in range(3):
        store.pushpull(1, value, None, 0)
    np.testing.assert_array_equal(value.asnumpy(), np.arange(floats))
    store.pull(1, out := full(0, (floats,)), 0, True)
    np.testing.assert_array_equal(out.asnumpy(), np.arange(floats))


# Of a convolution whose weights and results are small, and of one whose are not.
CHANNELS = pytest.mark.parametrize(("channels", "pixels"), [(16, 8), (64, 24)])


def convolution(channels: int) -> "mx.gluon.nn.Conv2D":
    block = mx.gluon.nn.Conv2D(channels, 3, in_channels=channels)
    block.initialize(mx.init.Uniform(1))
    return block


def require_blocked(array: mx.nd.NDArray) -> None:
    """Skip unless its memory is in a layout of oneDNN's, as on processors with AVX2 or AVX-512."""
    array.wait_to_read()
    if int(_LIB.MXNDArrayToDLPack(array.handle, ctypes.byref(ctypes.c_void_p()))) == 0:
        pytest.skip("oneDNN has no layout of its own for it on this processor")


@CHANNELS
def test_an_array_in_a_layout_of_mxnets_own_is_sent_by_value(
    store: NativeStore, channels: int, pixels: int
) -> None:
    block, images = convolution(channels), mx.nd.random.uniform(shape=(2, channels, pixels, pixels))
    want = block(images).asnumpy()
    # A view of such memory, which MXNet itself cannot copy, goes too.
    views = store._session._plugin.in_place and want.size > SMALL_MOST
    shapes = [want.shape, (want.size,)] if views else [want.shape]
    for key, shape in enumerate(shapes):
        made = block(images)
        value, out = made.reshape(shape), mx.nd.zeros(shape)
        require_blocked(made)
        store.init(key, out)
        store.pushpull(key, value, out, 0)
        np.testing.assert_array_equal(out.asnumpy().ravel(), want.ravel())
        np.testing.assert_array_equal(made.asnumpy(), want)


@CHANNELS
def test_a_weight_that_inference_has_blocked_is_sent_and_received_by_value(
    store: NativeStore, channels: int, pixels: int
) -> None:
    block = convolution(channels)
    weight = block.weight.data()
    want = weight.asnumpy().copy()
    store.init(1, mx.nd.zeros(weight.shape))
    for _ in range(3):
        before = block(mx.nd.ones((2, channels, pixels, pixels))).asnumpy()
        require_blocked(weight)
        store.pushpull(1, weight, weight, 0)
        np.testing.assert_array_equal(weight.asnumpy(), want)
        after = block(mx.nd.ones((2, channels, pixels, pixels))).asnumpy()
        np.testing.assert_allclose(after, before, rtol=1e-4)


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_a_slice_is_sent_from_its_place(store: NativeStore, floats: int) -> None:
    store.init(1, full(0, (floats,)))
    whole = mx.nd.arange(3 * floats)
    out = full(0, (floats,))
    store.pushpull(1, whole[floats : 2 * floats], out, 0)
    np.testing.assert_array_equal(out.asnumpy(), np.arange(floats, 2 * floats))


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_several_devices_and_pushes_apart_go_the_long_way(store: NativeStore, floats: int) -> None:
    store.init(1, full(0, (floats,)))
    out = full(0, (floats,))
    for step in range(1, 4):
        store.pushpull(1, [full(step, (floats,)), full(1, (floats,))], out, 0)
        assert (out.asnumpy() == step + 1).all()
        store.pushpull(1, full(step, (floats,)), out, 0)
        assert (out.asnumpy() == step).all()
        store.push(1, full(-step, (floats,)), 0)
        store.pull(1, out, 0, True)
        assert (out.asnumpy() == -step).all()


@pytest.mark.parametrize("floats", [SMALL, LARGE])
def test_an_updater_gets_the_sum(store: NativeStore, floats: int) -> None:
    def add(_key: object, total: mx.nd.NDArray, weight: mx.nd.NDArray) -> None:
        weight += total

    store.init(1, full(5, (floats,)))
    store.set_updater(add)
    value, out = full(1, (floats,)), full(0, (floats,))
    for step in range(1, 4):
        store.pushpull(1, value, out, 0)
        assert (out.asnumpy() == 5 + step).all()


def test_an_array_sent_from_its_place_needs_no_stage(store: NativeStore) -> None:
    in_place = store._session._plugin.in_place
    size = 64 << 20
    value = mx.nd.ones((size // 4,))
    value.wait_to_read()
    before = own_bytes()
    store.init(1, value)
    # The link is known after the first value, so the tensor is cut anew behind the first round, and
    # the sums of before are gone when the one behind that is there; busy machines take longer.
    stages = 0.0
    for step in range(16):
        store.pushpull(1, value, None, 0)
        value.wait_to_read()
        # Of the server, which is in this process, two sums; of the worker one stage or two.
        stages = (own_bytes() - before) / size - 2
        if step > 2 and (stages < 1.5) == in_place:
            break
    assert (stages < 1.5) == in_place


def test_an_array_with_a_failed_operation_fails_the_job(store: NativeStore) -> None:
    store.init(1, full(0, (LARGE,)))
    drawn = mx.nd.random.normal(0, -1, shape=(1,))  # refused by the operator, when it runs
    out = full(0, (LARGE,))
    store.pushpull(1, mx.nd.broadcast_to(drawn, shape=(LARGE,)), out, 0)
    with pytest.raises(mx.base.MXNetError, match="MXNet skipped the push of key 1 because"):
        out.wait_to_read()
    with pytest.raises(mx.base.MXNetError, match="MXNet skipped the push of key 1 because"):
        store.barrier()

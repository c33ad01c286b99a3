"""One key's arrays: their memory, which is Python's only where Python uses them."""

import tracemalloc
from typing import List, Tuple, Union

import mxnet as mx
import pytest
from fakes import full, own_bytes
from mxnet.base import NDArrayHandle

from bytescheduler.mxnet._arrays.rows_tensor import RowsTensor
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore


@pytest.mark.parametrize("as_arrays", [False, True])
def test_the_stages_of_a_tensor_go_with_it(as_arrays: bool) -> None:
    value, copier = full(1, (1 << 18,)), open_copier()
    size = 4 * value.size

    def use() -> None:
        tensor = Tensor(1, 1, value, copier)
        tensor.take(value)
        tensor.gather([value])
        if as_arrays:
            assert tensor.send[:1].asscalar() + tensor.recv[:1].asscalar() == 2
        mx.nd.waitall()

    for _ in range(50):  # until the allocator has what it keeps for each thread
        use()
    before = own_bytes()
    for _ in range(200):
        use()
    assert own_bytes() - before < 50 * size


def test_a_stage_that_cannot_be_made_is_missing_only_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = mx.nd.ndarray._new_alloc_handle

    def no_send(shape: object, ctx: object, delayed: bool, dtype: object) -> NDArrayHandle:
        if delayed:
            raise mx.base.MXNetError("no memory")
        return make(shape, ctx, delayed, dtype)

    value = full(1)
    monkeypatch.setattr(mx.nd.ndarray, "_new_alloc_handle", no_send)
    tensor = Tensor(1, 1, value, open_copier())
    tensor.take(value)
    with pytest.raises(mx.base.MXNetError, match="no memory"):
        tensor.gather([value])
    assert tensor.rounds.send == 0
    monkeypatch.undo()
    tensor.gather([value])
    assert (tensor.send.asnumpy() == 1).all()


def test_an_array_of_a_stage_outlives_the_tensor() -> None:
    tensor = Tensor(1, 1, full(0), open_copier())
    tensor.take(full(3))
    array = tensor.recv
    assert array is tensor.recv
    del tensor
    assert (array.asnumpy() == 3).all()


def test_a_key_takes_little_of_python(session: TensorSession) -> None:
    store, zero, count = NativeStore(session), full(0, (1,)), 1000
    store.init(count, zero)
    tracemalloc.start()
    try:
        store.init(list(range(count)), [zero] * count)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # With what the fake keeps.  Twice as much when each key had arrays, names and a dictionary.
    assert taken / count < 700


@pytest.fixture
def between_devices(monkeypatch: pytest.MonkeyPatch) -> List[Tuple[int, int]]:
    """Return where copies go from and to, as MXNet makes them: 0 is the host."""
    copies: List[Tuple[int, int]] = []
    copy = mx.nd.NDArray.copyto

    def noted(array: mx.nd.NDArray, target: Union[mx.Context, mx.nd.NDArray]) -> mx.nd.NDArray:
        context = target if isinstance(target, mx.Context) else target.context
        if context != array.context:
            copies.append((array.context.device_id, context.device_id))
        return copy(array, target)

    monkeypatch.setattr(mx.nd.NDArray, "copyto", noted)
    return copies


def on(device: int, value: float) -> mx.nd.NDArray:
    """Return an array of a context that plays a GPU, unless `device` is 0."""
    return full(value).as_in_context(mx.cpu(device))


def test_one_copy_leaves_the_devices_of_a_worker(between_devices: List[Tuple[int, int]]) -> None:
    tensor, values = Tensor(1, 1, full(0), open_copier()), [on(d, 10.0**d) for d in (1, 2, 3)]
    between_devices.clear()
    tensor.gather(values)
    assert between_devices == [(2, 1), (3, 1), (1, 0)]
    assert (tensor.send.asnumpy() == 1110).all()
    assert [value.asnumpy().max() for value in values] == [10, 100, 1000]


def test_one_copy_of_a_sum_reaches_the_devices_of_a_worker(
    between_devices: List[Tuple[int, int]],
) -> None:
    tensor = Tensor(1, 1, full(7), open_copier())
    tensor.take(full(7))
    half = full(0).astype("float16").as_in_context(mx.cpu(3))
    outs = [on(1, 0), on(0, 0), on(2, 0), half]
    between_devices.clear()
    tensor.copy_out(outs)
    assert between_devices == [(0, 1), (1, 2), (0, 3)]
    assert all((out.asnumpy() == 7).all() for out in outs)


def test_rows_of_devices_leave_as_one_copy(between_devices: List[Tuple[int, int]]) -> None:
    like = mx.nd.zeros((4, 2))
    tensor = RowsTensor(1, 1, like, open_copier())
    rows = [
        mx.nd.sparse.row_sparse_array(([[d, d]], [d]), shape=(4, 2), ctx=mx.cpu(d)) for d in (1, 2)
    ]
    between_devices.clear()
    tensor.gather(rows)
    assert between_devices.count((1, 0)) == 2  # the sum, and the count of each row
    assert (2, 0) not in between_devices
    assert tensor.send.asnumpy().tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 0, 1, 1, 0]

"""One key's arrays: their memory, which is Python's only where Python uses them."""

import tracemalloc

import mxnet as mx
import pytest
from fakes import full, own_bytes
from mxnet.base import NDArrayHandle

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

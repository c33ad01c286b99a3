"""One key's arrays: their memory, which is Python's only where Python uses them."""

import tracemalloc

import mxnet as mx
import pytest
from fakes import full, own_bytes
from mxnet.base import NDArrayHandle

from bytescheduler.mxnet._arrays import tensor as _tensor
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet._stores.tensor_session import TensorSession


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


def test_the_first_stage_is_freed_when_there_is_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    make, free = mx.nd.ndarray._new_alloc_handle, _tensor._free
    made, freed = [], []

    def first_only(shape: object, ctx: object, delayed: bool, dtype: object) -> NDArrayHandle:
        if delayed:
            raise mx.base.MXNetError("no memory")
        made.append(make(shape, ctx, delayed, dtype))
        return made[-1]

    def freed_too(handle: NDArrayHandle) -> None:
        freed.append(handle)
        free(handle)

    value, copier = full(1), open_copier()
    monkeypatch.setattr(mx.nd.ndarray, "_new_alloc_handle", first_only)
    monkeypatch.setattr(_tensor, "_free", freed_too)
    with pytest.raises(mx.base.MXNetError, match="no memory"):
        Tensor(1, 1, value, copier)
    assert len(made) == 1
    assert freed == made


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

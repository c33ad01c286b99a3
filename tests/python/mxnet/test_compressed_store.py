"""The stock store's own compression, over a store that takes integer keys only."""

from typing import Any, List

import mxnet as mx
import pytest
from fakes import full
from mxnet.base import MXNetError

from bytescheduler.mxnet._compressed_store import CompressedStore


@pytest.fixture
def store() -> CompressedStore:
    inner = mx.kv.create("local")
    inner.init(70000, full(1))  # so names are refused by it
    return CompressedStore(inner)


def test_names_are_numbers_to_the_wrapped_store(store: CompressedStore) -> None:
    store.init(["b", "a"], [full(1), full(2)])
    outs = [[full(0)], [full(0), full(0)]]
    store.broadcast("c", full(3), outs[0], 0)
    assert (outs[0][0].asnumpy() == 3).all()
    store.push(["a", "b"], [full(4), [full(5), full(6)]], -1)
    store.pull(["b", "a"], outs, 0, True)
    assert [out.asnumpy()[0, 0] for each in outs for out in each] == [11, 4, 4]
    store.init("rows", full(7).tostype("row_sparse"))
    out = full(0).tostype("row_sparse")
    store.row_sparse_pull("rows", out, 0, mx.nd.array([1]))
    assert out.asnumpy().tolist() == [[0, 0, 0], [7, 7, 7]]
    assert store._numbers == {"b": 0, "a": 1, "c": 2, "rows": 3}


def test_a_pushpull_is_a_push_and_a_pull(store: CompressedStore) -> None:
    store.init([65535, 2], [full(0), full(0)])
    values = [full(1), full(2)]
    outs = [full(0), full(0)]
    store.pushpull([65535, 2], values, outs, 0)
    assert [out.asnumpy()[0, 0] for out in outs] == [1, 2]
    devices = [full(1), full(2)]
    store.pushpull(2, devices, None, 0)
    assert [value.asnumpy()[0, 0] for value in devices] == [3, 3]


class Recorder:
    """Keeps the arrays of the calls, and pulls 7."""

    def __init__(self) -> None:
        self.arrays: List[Any] = []

    def init(self, key: object, value: object) -> None: ...

    def push(self, key: object, value: "List[Any]", priority: int) -> None:
        self.arrays.append(value)

    def pull(self, key: object, out: "List[Any]", priority: int, ignore_sparse: bool) -> None:
        self.arrays.append(out)
        out[0][0][:] = 7


def test_a_key_has_one_array_in_the_engine_that_orders_its_pushes_and_pulls() -> None:
    inner = Recorder()
    store = CompressedStore(inner)
    out, other, gradient = full(0), full(0), full(3)
    store.broadcast("a", full(1), out, 0)
    store.push("a", [gradient, other], 0)
    ((first,),), ((pushed, second),) = inner.arrays
    assert pushed is first
    assert second is other
    assert (pushed.asnumpy() == 3).all()
    store.pull("a", [out, other], 0, True)
    assert inner.arrays[-1][0][0] is first
    for array in (out, other):
        assert (array.asnumpy() == 7).all()
    assert (gradient.asnumpy() == 3).all()  # stock pulls into what a single device pushed
    # What cannot be compressed goes as it is, for the stock store to refuse.
    for value in (full(1).astype("float16"), full(1, (6,)), full(1).tostype("row_sparse")):
        store.push("a", value, 0)
        assert inner.arrays[-1][0][0] is value
    rows = full(0).tostype("row_sparse")
    store.pull("a", rows, 0, False)
    assert inner.arrays[-1][0][0] is rows


def test_the_array_of_a_key_is_on_the_cpu_and_moves_only_to_be_summed() -> None:
    inner = Recorder()
    store = CompressedStore(inner)
    elsewhere = mx.cpu(1)  # stands for a GPU
    with elsewhere:
        gradients = [full(3), full(4)]
        store.init("a", full(1))
    store.pull("a", gradients[1], 0, True)
    relay = inner.arrays[-1][0][0]
    assert relay.context == mx.cpu()
    store.push("a", gradients[0], 0)
    assert inner.arrays[-1][0][0] is relay
    store.push("a", gradients, 0)
    assert [array.context for array in inner.arrays[-1][0]] == [elsewhere, elsewhere]


def test_no_arrays_are_nothing_to_do_as_without_compression(store: CompressedStore) -> None:
    out = full(0)
    for each in (mx.kv.create("local"), store):
        each.init(3, full(1))
        each.init(4, [])
        each.push(3, [], 0)
        each.pull(3, [], 0, True)
        each.pushpull(3, [], None, 0)
        each.pull(3, out, 0, True)
        assert (out.asnumpy() == 1).all()


def test_what_is_wrong_is_refused_before_the_wrapped_store_sees_it(store: CompressedStore) -> None:
    store.init(1, full(1))
    for call, text in (
        (lambda: store.init(1, full(1)), "duplicate init of key 1"),
        (lambda: store.init("a", full(1)), "key 'a': int and str keys cannot be mixed"),
        (lambda: store.init(65536, full(1)), "key 65536: with compression on stock servers want"),
        (lambda: store.push(5, full(1), 0), "key 5 has not been initialised"),
        (lambda: store.pull("a", full(1), 0, True), "key 'a' has not been"),
    ):
        with pytest.raises(MXNetError, match=text):
            call()
    with pytest.raises(AssertionError, match="unexpected type for keys"):
        store.push(1.5, full(1), 0)
    # What stock finds in the arguments as such comes first here too, though 5 is no key.
    with pytest.raises(AssertionError, match="inconsistent types of keys"):
        store.pull([5, "a"], [full(1), full(1)], 0, True)
    with pytest.raises(TypeError):
        store.push(5, 1.0, 0)
    with pytest.raises(AssertionError, match="needs row_ids"):
        store.row_sparse_pull(5, full(0).tostype("row_sparse"), 0, None)
    with pytest.raises(AssertionError, match="needs out"):
        store.row_sparse_pull(5, None, 0, full(0))
    with pytest.raises(MXNetError, match="key 65536: with compression"):
        store.init([3, 65536], [full(1), full(1)])
    store.init(3, full(1))  # no key of a call that failed is taken

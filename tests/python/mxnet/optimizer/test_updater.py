"""Updaters on the worker, on weights that are row_sparse."""

import mxnet as mx
import pytest
from fakes import full

from bytescheduler.mxnet._optimizer.updater import make_updater
from bytescheduler.mxnet._stores.native_store import NativeStore


def test_the_updater_is_mxnets_own() -> None:
    assert type(make_updater(mx.optimizer.SGD())) is mx.optimizer.Updater
    assert isinstance(make_updater(mx.optimizer.Test()), mx.optimizer.Updater)


@pytest.mark.parametrize("multi_precision", [False, True])
@pytest.mark.parametrize("key", [4, "embedding"])
def test_the_test_optimizer_updates_row_sparse_and_dense_weights(
    store: NativeStore, key: "int | str", multi_precision: bool
) -> None:
    """A copy of the weight is its state; as a dense one that raises."""
    other = "fc" if isinstance(key, str) else 5
    store.init([key, other], [full(2).tostype("row_sparse"), full(2)])
    store.set_optimizer(mx.optimizer.Test(rescale_grad=3.0, multi_precision=multi_precision))
    one_row = mx.nd.sparse.row_sparse_array(([[1.0, 1.0, 1.0]], [1]), shape=(2, 3))
    for _ in range(2):
        store.push(key, one_row, 0)
        store.push(other, full(1), 0)
    out = full(0)
    store.pull(key, out, 0, True)
    assert out.asnumpy().tolist() == [[2, 2, 2], [8, 8, 8]]
    states = store.updater.states
    assert states[key].asnumpy().tolist() == out.asnumpy().tolist()
    assert (states[key].stype, states[other].stype) == ("row_sparse", "default")
    store.pull(other, out, 0, True)
    assert (out.asnumpy() == 8).all()

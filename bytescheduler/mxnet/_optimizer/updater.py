"""The updater of a worker's optimizer: MXNet's own, but for a state that does not fit."""

import mxnet as mx

from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._types import Array, Key, Optimizer, Updater


class _SparseStateUpdater(mx.optimizer.Updater):  # type: ignore[misc]  # MXNet has no types
    """For `mx.optimizer.Test`, which keeps a copy of each weight in a state that is always dense.

    To copy a row_sparse weight there raises, after the weight was updated.  Stock stores print the
    exception and go on, and scripts rely on it; here the state is row_sparse like the weight.
    """

    def __call__(self, index: "Key | bytes", grad: Array, weight: Array) -> None:
        name = index.decode() if isinstance(index, bytes) else index
        if is_sparse(weight) and name not in self.states:
            like = {"ctx": weight.context, "dtype": weight.dtype}
            self.states[name] = mx.nd.sparse.zeros("row_sparse", weight.shape, **like)
            self.states_synced[name] = True
        super().__call__(index, grad, weight)


def require_optimizer(optimizer: Optimizer) -> None:
    """Raise TypeError unless `optimizer` is one; MXNetError if it adds up gradients by itself."""
    if not isinstance(optimizer, mx.optimizer.Optimizer):
        raise TypeError(f"want an mx.optimizer.Optimizer, got {optimizer!r}")
    if getattr(type(optimizer), "adds_up", False):
        raise mx.base.MXNetError(
            f"{type(optimizer).__name__} takes means over all workers, and so does the store: give "
            "the store the optimizer that is inside"
        )


def make_updater(optimizer: Optimizer) -> Updater:
    """Return the function that updates weights with `optimizer`."""
    require_optimizer(optimizer)
    if type(optimizer) is mx.optimizer.Test:
        return _SparseStateUpdater(optimizer)
    return mx.optimizer.get_updater(optimizer)


def require_alike(updater: Updater) -> None:
    """Raise MXNetError if workers with this updater would have weights that differ."""
    if isinstance(getattr(updater, "optimizer", None), mx.optimizer.SGLD):
        raise mx.base.MXNetError(
            "SGLD draws random numbers, and every worker, which updates its own weights, would "
            "draw others: use a dist_async store, whose servers update, or another optimizer"
        )

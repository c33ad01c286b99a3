"""ScheduledTrainer: Gluon's Trainer over a ScheduledKVS."""

from typing import Mapping, Optional, Union

import mxnet as mx
from mxnet.kvstore import KVStoreBase

from bytescheduler.mxnet._types import Optimizer
from bytescheduler.mxnet.kvstore import ScheduledKVS

__all__ = ["ScheduledTrainer"]


class ScheduledTrainer(mx.gluon.Trainer):  # type: ignore[misc]  # MXNet has no types
    """A ``gluon.Trainer`` whose urgent gradients go first.

    Every worker gets rank 0's parameters when the trainer is made, so that already the first
    forward pass uses them; blocks until rank 0 is there.  Like Gluon's own trainer, this waits for
    the first step if a shape is not known before.  It also does if servers update the weights,
    which must learn the batch size first.  If workers update the weights, another batch size or
    learning rate takes effect at once.  With updates on the store, workers may give `step` other
    batch sizes, and each gradient is divided by that of its worker.  That ends where gradients are
    compressed or have a momentum of compression.  The first step waits until all workers make it.

    So load or set parameters before the trainer is made.  Loading them later raises, or, with
    ``update_on_kvstore=False``, changes only the worker that loads them.

    Parameters
    ----------
    params : ParameterDict, dict, list or tuple
        The parameters, such as ``net.collect_params()``; initialised.
    optimizer : str or Optimizer
        As for ``gluon.Trainer``.
    optimizer_params : dict, optional
        As for ``gluon.Trainer``.
    kvstore : str or KVStoreBase, optional
        The store to schedule, or its name.  A `ScheduledKVS` is used as it is.  By default
        ``"bytescheduler"``, which needs no other store.  There is always a store: None, which in
        Gluon's own stands for none, is a TypeError.
    compression_params : dict, optional
        As for ``gluon.Trainer``.
    update_on_kvstore : bool, optional
        As for ``gluon.Trainer``.

    Raises
    ------
    TypeError
        `kvstore` is neither a name nor a store.
    ConfigError, Timeout, PeerLost, MXNetError
        As `ScheduledKVS`.

    Examples
    --------
    >>> trainer = ScheduledTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    """

    def __init__(
        self,
        params: object,
        optimizer: Union[str, Optimizer],
        optimizer_params: Optional[Mapping[str, object]] = None,
        kvstore: Union[str, KVStoreBase] = "bytescheduler",
        compression_params: Optional[Mapping[str, object]] = None,
        update_on_kvstore: Optional[bool] = None,
    ) -> None:
        store = mx.kv.create(kvstore) if isinstance(kvstore, str) else kvstore
        if not isinstance(store, ScheduledKVS):
            store = ScheduledKVS(store)
        super().__init__(
            params,
            optimizer,
            optimizer_params,
            kvstore=store,
            compression_params=compression_params,
            update_on_kvstore=update_on_kvstore,
        )
        self.kvstore = store
        self._has_stepped = False
        has_shapes = not any(param._deferred_init for param in self._params)
        if store._backend.updates_here and has_shapes:
            self._init_kvstore()
            self._init_params()

    def _reset_kvstore(self) -> None:
        # Gluon's own calls it first while it is made.
        if getattr(self, "_kv_initialized", False) and "dist" in self.kvstore.type:
            raise RuntimeError(
                "this ScheduledTrainer has copied rank 0's parameters to every worker already: "
                "load or set parameters before it is made, or use gluon.Trainer, which begins at "
                "the first step"
            )
        super()._reset_kvstore()

    def _check_and_rescale_grad(self, scale: float) -> None:
        backend = self.kvstore._backend
        if backend.updates_here:
            self._optimizer.rescale_grad = scale
            if self._kv_initialized and not self._has_stepped and self._update_on_kvstore:
                backend.agree_on_rescaling()  # when it was made no batch size was known
            self._has_stepped = True
            if not self._update_on_kvstore:
                backend.follow(self._optimizer)
        else:
            super()._check_and_rescale_grad(scale)

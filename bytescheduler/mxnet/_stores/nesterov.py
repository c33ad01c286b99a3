"""Nesterov's momentum of gradients before they are pushed, in place of the optimizer's own."""

import contextlib
import logging
import math
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import mxnet as mx

from bytescheduler._compression.params import Compression
from bytescheduler.mxnet._arrays.compression import sends_rows
from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import HALVES, Tensor
from bytescheduler.mxnet._stores.scaled_steps import is_scaling
from bytescheduler.mxnet._types import Array, Key, Optimizer, Updater

__all__ = ["Nesterov"]

_log = logging.getLogger(__name__)
# Keys and their gradients.
Pushed = Sequence[Tuple[Tensor, List[Array]]]
_NAMED = "momentum 'nesterov' of gradient compression"


def _rows_refused(key: Key) -> mx.base.MXNetError:
    return mx.base.MXNetError(
        f"key {key!r}: row_sparse arrays have no {_NAMED}, because that would touch other rows; "
        "push dense ones"
    )


def _check_dtype(tensor: Tensor, arrays: List[Array]) -> None:
    if tensor.carries_rows or any(map(is_sparse, arrays)):
        raise _rows_refused(tensor.key)
    if "float" not in tensor.dtype.name:
        raise mx.base.MXNetError(
            f"key {tensor.key!r}: {tensor.dtype.name} has no {_NAMED}, only floating point has"
        )


class Nesterov:
    """Gradients get a momentum on their worker, and the optimizer updates without its own.

    With a momentum mu and a gradient g a worker pushes g + mu m, where m is mu m + g.  Weight decay
    takes no part in that, so its own momentum is added behind the sum.  Together that is MXNet's
    NAG, but for rounding.

    Parameters
    ----------
    compression : Compression
        Says whether there is a momentum, without which this does nothing, and its number.
    updater : callable, optional
        The store's, which is checked.
    """

    def __init__(self, compression: Compression, updater: Updater = None) -> None:
        self.is_on = compression.has_momentum
        self._mu = compression.mu  # None: the optimizer's
        self._momenta: Dict[Key, Array] = {}
        self._decays: Dict[Key, Array] = {}
        self._rescales: Dict[Key, float] = {}  # by key, when it was pushed last
        self._told = False
        if updater is not None:
            self.check(updater)

    @property
    def has_begun(self) -> bool:
        """True if something was pushed with a momentum."""
        return bool(self._momenta)

    def begin_anew(self) -> None:
        """Forget what was pushed: the optimizer is another one, or has other states."""
        for numbers in (self._momenta, self._decays, self._rescales):
            numbers.clear()

    def tell_unsaved(self) -> None:
        """Say that the optimizer's states, which are being saved, hold no momentum."""
        if self.is_on:
            _log.warning(
                "%s is in no file of optimizer states: a job that loads them begins with none",
                _NAMED,
            )

    def check(self, updater: Updater, pushed: Pushed = ()) -> None:
        """Raise MXNetError unless the optimizer of `updater`, and what is pushed, go with this."""
        if not self.is_on:
            return
        for tensor, arrays in pushed:
            _check_dtype(tensor, arrays)
        params = getattr(getattr(updater, "optimizer", None), "param_dict", None) or {}
        for key, param in params.items() if pushed and not self.has_begun else ():
            if sends_rows(param):  # a later push, whose error would come behind updates
                raise _rows_refused(key)
        if pushed and is_scaling():
            raise mx.base.MXNetError(
                f"{_NAMED} does not go with AMP's loss scaling: workers would keep the gradients "
                "of steps that it skips; leave one of them out"
            )
        optimizer = getattr(updater, "optimizer", None)
        if optimizer is None:
            raise mx.base.MXNetError(
                f"{_NAMED} needs an optimizer in the store, which updates without a momentum of "
                "its own: call set_optimizer, or let the Trainer update on the store "
                "(update_on_kvstore=True)"
            )
        if type(optimizer) not in (mx.optimizer.SGD, mx.optimizer.NAG):
            raise mx.base.MXNetError(
                f"{_NAMED} goes with the optimizers 'sgd' and 'nag', not with "
                f"{type(optimizer).__name__}: use one of them, or leave the momentum out"
            )
        if optimizer.clip_gradient:
            raise mx.base.MXNetError(
                f"{_NAMED} does not go with clip_gradient {optimizer.clip_gradient}, which would "
                "cut gradients together with their momentum: leave one of them out"
            )
        if self._mu is None and not optimizer.momentum:
            raise mx.base.MXNetError(
                f"{_NAMED} has no number: give the optimizer a momentum, or compression 'mu': 0.9"
            )
        if not self._told:
            self._told = True
            _log.info(
                "%s is %g: the optimizer updates without its own", _NAMED, self._mu_of(optimizer)
            )

    def as_nag(self, optimizer: Optimizer) -> Optimizer:
        """Return MXNet's NAG with the numbers of `optimizer` and this momentum."""
        nag = mx.optimizer.NAG(momentum=self._mu_of(optimizer))
        taken = set(vars(nag)) - {"momentum", "aggregate_num"}
        vars(nag).update((name, vars(optimizer)[name]) for name in taken)
        return nag

    def _mu_of(self, optimizer: Optimizer) -> float:
        return float(optimizer.momentum) if self._mu is None else self._mu

    def apply(self, tensor: Tensor, updater: Updater) -> None:
        """Let what `tensor` sends be the gradient with its momentum."""
        if not self.is_on or tensor.size_bytes == 0:
            return
        optimizer = updater.optimizer
        mu, key = self._mu_of(optimizer), tensor.key
        gradient = tensor.send
        if tensor.dtype.name in HALVES:
            gradient = gradient.astype("float32")
        momentum = self._momenta.get(key)
        if momentum is None:
            momentum = self._momenta[key] = mx.nd.zeros_like(gradient)
        # An infinity would stay for good.
        is_finite = mx.nd.contrib.isfinite(gradient).min().reshape((1,) * len(tensor.shape))
        is_finite = mx.nd.broadcast_like(is_finite, gradient)
        taken = mx.nd.where(is_finite, gradient, mx.nd.zeros_like(gradient))
        momentum *= mu * self._ratio(key, optimizer)
        momentum += taken
        (gradient + mu * momentum).astype(tensor.send.dtype, copy=False).copyto(tensor.send)

    def _ratio(self, key: Key, optimizer: Optimizer) -> float:
        """Return the factor of a momentum whose gradients were rescaled otherwise."""
        rescale = float(optimizer.rescale_grad)
        before = self._rescales.get(key, rescale)
        self._rescales[key] = rescale
        ratio = before / rescale if rescale else 1.0
        return ratio if math.isfinite(ratio) and ratio > 0 else 1.0

    @contextlib.contextmanager
    def plain(self, tensor: Tensor, updater: Updater) -> Iterator[None]:
        """Let the optimizer update without momentum and weight decay, then add the latter."""
        if not self.is_on or tensor.size_bytes == 0:
            yield
            return
        optimizer: Any = updater.optimizer
        decay = float(optimizer._get_wd(tensor.key))
        # The optimizer reads its numbers inside the call, so nothing else sees these.
        momentum, wd = optimizer.momentum, optimizer.wd
        before = tensor.stored.copy() if decay else None
        optimizer.momentum, optimizer.wd = 0.0, 0.0
        try:
            yield
        finally:
            optimizer.momentum, optimizer.wd = momentum, wd
        if before is None:
            return
        mu, stored = self._mu_of(optimizer), tensor.stored
        decays = self._decays.get(tensor.key)
        if decays is None:
            decays = self._decays[tensor.key] = mx.nd.zeros_like(before)
        before *= decay
        decays *= mu
        rate = float(optimizer._get_lr(tensor.key))
        stored -= rate * (before + mu * (decays + before))
        # MXNet's NAG keeps the decay of the weight that it has just updated.
        decays += decay * stored

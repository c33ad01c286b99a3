"""The rates that residuals of gradient compression follow."""

import functools
import logging
import math
from typing import Optional

from bytescheduler._native import Coding
from bytescheduler.mxnet._sessions.tensor_session import Rates
from bytescheduler.mxnet._types import Key, Optimizer, Updater

__all__ = ["rates_of", "tell_unsuited"]

_log = logging.getLogger(__name__)
_FOLLOWS = {2: "corrected", 3: "sparse"}  # the feedbacks that follow the learning rate
_DIVIDED = {4: "onebit", 5: "topk"}  # the codecs
# Optimizers whose updates are no sums of gradients.
_UNSUITED = ("Adam", "LAMB", "RMSProp")


def rates_of(coding: Optional[Coding], optimizer: Optimizer, key: Key) -> Optional[Rates]:
    """Return the rates of the next update of `key`; None if no residual of `coding` follows them.

    A rate that is not finite is 0, which no residual follows.
    """
    if coding is None or coding.feedback == 0:
        return None
    if optimizer is None:
        if coding.feedback in _FOLLOWS:
            _tell_none(_FOLLOWS[coding.feedback])
        return None
    numbers = (float(_next_rate(optimizer, key)), float(optimizer.rescale_grad))
    rate, rescale = (number if math.isfinite(number) else 0.0 for number in numbers)
    return rate, 0.0, rescale


def _next_rate(optimizer: Optimizer, key: Key) -> float:
    """Return the learning rate that the optimizer has once it has counted the update of `key`."""
    if optimizer.lr_scheduler is None:
        return optimizer.lr  # type: ignore[no-any-return]  # MXNet has no types
    counted = optimizer._index_update_count.get(key, optimizer.begin_num_update)
    return optimizer.lr_scheduler(max(optimizer.num_update, counted + 1))  # type: ignore[no-any-return]


def tell_unsuited(coding: Optional[Coding], updater: Updater) -> None:
    """Warn once of an optimizer for which error feedback promises nothing."""
    name = type(getattr(updater, "optimizer", None)).__name__
    if coding is not None and coding.codec in _DIVIDED and name in _UNSUITED:
        _tell_unsuited(name, _DIVIDED[coding.codec])


@functools.lru_cache(maxsize=None)  # once a process
def _tell_unsuited(name: str, compressor: str) -> None:
    _log.warning(
        "%s divides by the size of gradients, so what %s loses may not come later as it does "
        "with 'sgd': watch the loss, or compress to 'bf16'",
        name,
        compressor,
    )


@functools.lru_cache(maxsize=None)  # once a process
def _tell_none(feedback: str) -> None:
    _log.warning(
        "ef %r of gradient compression follows the learning rate of the store's optimizer, and "
        "there is none: it does what 'vanilla' does",
        feedback,
    )

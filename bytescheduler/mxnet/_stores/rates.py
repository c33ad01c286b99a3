"""The rates that residuals of gradient compression follow."""

import functools
import logging
import math
from typing import Optional

from bytescheduler._native import Coding
from bytescheduler.mxnet._sessions.tensor_session import Rates
from bytescheduler.mxnet._types import Updater

__all__ = ["rates_of", "tell_unsuited"]

_log = logging.getLogger(__name__)
_CORRECTED = 2  # the feedback that follows the learning rate
_ONEBIT = 4  # the codec
# Optimizers whose updates are no sums of gradients.
_UNSUITED = ("Adam", "LAMB", "RMSProp")


def rates_of(coding: Optional[Coding], updater: Updater) -> Optional[Rates]:
    """Return the rates of the optimizer now; None if no residual of `coding` could follow them.

    A rate that is not finite is 0, which no residual follows.
    """
    if coding is None or coding.feedback == 0:
        return None
    optimizer = getattr(updater, "optimizer", None)
    if optimizer is None:
        if coding.feedback == _CORRECTED:
            _tell_none()
        return None
    numbers = (float(optimizer.learning_rate), float(optimizer.rescale_grad))
    rate, rescale = (number if math.isfinite(number) else 0.0 for number in numbers)
    return rate, 0.0, rescale


def tell_unsuited(coding: Optional[Coding], updater: Updater) -> None:
    """Warn once of an optimizer for which error feedback promises nothing."""
    name = type(getattr(updater, "optimizer", None)).__name__
    if coding is not None and coding.codec == _ONEBIT and name in _UNSUITED:
        _tell_unsuited(name)


@functools.lru_cache(maxsize=None)  # once a process
def _tell_unsuited(name: str) -> None:
    _log.warning(
        "%s divides by the size of gradients, so what onebit loses may not come later as it does "
        "with 'sgd': watch the loss, or compress to 'bf16'",
        name,
    )


@functools.lru_cache(maxsize=None)  # once a process
def _tell_none() -> None:
    _log.warning(
        "ef 'corrected' of gradient compression follows the learning rate of the store's "
        "optimizer, and there is none: it does what 'vanilla' does"
    )

"""The rates that residuals of gradient compression follow, and what the log tells of it."""

import functools
import logging
import math
from typing import Callable, Iterable, Optional

from bytescheduler._compression.log_lines import Size, summary_line, unsuited_line
from bytescheduler._compression.params import FOLLOWING, Compression
from bytescheduler._native import Coding
from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._sessions.tensor_session import Rates
from bytescheduler.mxnet._types import Key, Optimizer

__all__ = ["rates_of", "tell_summary", "tell_unsuited"]

_log = logging.getLogger(__name__)


def rates_of(coding: Optional[Coding], optimizer: Optimizer, key: Key) -> Optional[Rates]:
    """Return the rates of the next update of `key`; None if no residual of `coding` follows them.

    A rate that is not finite is 0, which no residual follows.
    """
    if coding is None or coding.feedback == 0:
        return None
    if optimizer is None:
        if coding.feedback in FOLLOWING:
            _tell_none(FOLLOWING[coding.feedback])
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


def tell_summary(
    compression: Compression,
    rank: int,
    tensors: Iterable[Tensor],
    is_plain: Optional[Callable[[Tensor], bool]] = None,
) -> None:
    """Let worker 0 say how much of a model, whose tensors these are, is compressed.

    `is_plain` is for asynchronous keys, of which weights come back: it returns whether a tensor
    travels plain, whatever its size.
    """
    if rank == 0 and Settings.read().is_talkative:
        sizes = [
            Size(
                tensor.own_bytes // tensor.dtype.size_bytes,
                tensor.dtype.size_bytes,
                is_plain is not None and is_plain(tensor),
            )
            for tensor in tensors
            if tensor.own_bytes > 0
        ]
        line = summary_line(compression, sizes, one_way=is_plain is not None)
        say(f"bytescheduler: {line}")


def tell_unsuited(coding: Optional[Coding], optimizer: Optimizer) -> None:
    """Warn once of an optimizer for which error feedback promises nothing."""
    line = unsuited_line(coding, type(optimizer).__name__)
    if line is not None:
        _tell_unsuited(line)


@functools.lru_cache(maxsize=None)  # once a process
def _tell_unsuited(line: str) -> None:
    _log.warning("%s", line)


@functools.lru_cache(maxsize=None)  # once a process
def _tell_none(feedback: str) -> None:
    _log.warning(
        "ef %r of gradient compression follows the learning rate of the store's optimizer, and "
        "there is none: it does what 'vanilla' does",
        feedback,
    )

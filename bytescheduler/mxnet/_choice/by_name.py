"""Lets Gluon's Trainer and Module take our store by its name in a job.

With one device MXNet makes no store whose name has no "dist" in it.  Such a worker would train
alone.
"""

import functools
from typing import Callable, Tuple

import mxnet as mx

from bytescheduler._session.direct import check_left_over, in_direct_job
from bytescheduler._settings import Settings

__all__ = ["take_part"]

_NAMES = ("bytescheduler", "scheduledkvs")
_Create = Callable[[object, int, object], Tuple[object, bool]]
# Each has its own reference to the function.
_PLACES = (mx.model, mx.gluon.trainer, mx.module.module)


def _creates(original: _Create) -> _Create:
    @functools.wraps(original)
    def create(kvstore: object, num_device: int, arg_params: object) -> Tuple[object, bool]:
        if isinstance(kvstore, str) and kvstore.lower() in _NAMES:
            check_left_over()
            if Settings.read().role == "worker" or in_direct_job():
                kvstore = mx.kv.create(kvstore)
        return original(kvstore, num_device, arg_params)

    return create


def take_part() -> None:
    """Let a name of ours stand for a store of the job whatever the number of devices."""
    for place in _PLACES:
        place._create_kvstore = _creates(place._create_kvstore)

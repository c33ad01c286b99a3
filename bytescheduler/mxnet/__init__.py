"""MXNet: a KVStore that sends the urgent gradients first.

Add one line to a training script::

    kvs = mx.kv.create("dist_sync")
    kvs = ScheduledKVS(kvs)

Importing this also makes ``mx.kv.create("bytescheduler")`` work; it starts nothing.
"""

import sys

try:
    import mxnet  # noqa: F401  # before all that needs it
except ModuleNotFoundError as error:
    if error.name != "mxnet":
        raise
    _cure = "python -m pip install 'bytescheduler[mxnet]'"
    if sys.version_info >= (3, 12):
        _cure = "its last release, 1.9.1, runs on Python 3.8 to 3.11; use one of those"
    raise ModuleNotFoundError(f"MXNet is not installed: {_cure}", name="mxnet") from error

from bytescheduler.mxnet._byteps import (
    DistributedOptimizer,
    DistributedTrainer,
    broadcast_parameters,
    byteps_declare_tensor,
    byteps_push_pull,
    init,
    local_rank,
    local_size,
    rank,
    resume,
    shutdown,
    size,
    suspend,
)
from bytescheduler.mxnet.kvstore import ScheduledKVS, ScheduledKVStore
from bytescheduler.mxnet.trainer import ScheduledTrainer

__all__ = [
    "DistributedOptimizer",
    "DistributedTrainer",
    "ScheduledKVS",
    "ScheduledKVStore",
    "ScheduledTrainer",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "resume",
    "shutdown",
    "size",
    "suspend",
]

"""MXNet: a KVStore that sends the urgent gradients first.

Add one line to a training script::

    kvs = mx.kv.create("dist_sync")
    kvs = ScheduledKVS(kvs)

Importing this also makes ``mx.kv.create("bytescheduler")`` work; it starts nothing.
"""

from bytescheduler.mxnet.kvstore import ScheduledKVS, ScheduledKVStore
from bytescheduler.mxnet.trainer import ScheduledTrainer

__all__ = ["ScheduledKVS", "ScheduledKVStore", "ScheduledTrainer"]

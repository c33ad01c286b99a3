"""MXNet: a KVStore that sends the urgent gradients first.

Add one line to a training script::

    kvs = mx.kv.create("dist_sync")
    kvs = ScheduledKVS(kvs)

Importing this also makes ``mx.kv.create("bytescheduler")`` work; it starts nothing.
"""

from bytescheduler.mxnet._stores.by_name import take_part
from bytescheduler.mxnet._stores.dist_names import DistNames
from bytescheduler.mxnet._stores.opening import OWN
from bytescheduler.mxnet.kvstore import ScheduledKVS, ScheduledKVStore
from bytescheduler.mxnet.trainer import ScheduledTrainer

__all__ = ["ScheduledKVS", "ScheduledKVStore", "ScheduledTrainer"]

take_part()
DistNames(OWN).take_over()

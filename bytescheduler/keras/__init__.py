"""Keras on TensorFlow, by the name of Horovod and BytePS: see `bytescheduler.tensorflow.keras`."""

from bytescheduler.keras import callbacks
from bytescheduler.tensorflow.keras import (
    Average,
    Compression,
    DistributedOptimizer,
    Sum,
    broadcast,
    cross_barrier,
    init,
    initialized,
    load_model,
    local_rank,
    local_size,
    push_pull,
    rank,
    shutdown,
    size,
)

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Sum",
    "broadcast",
    "callbacks",
    "cross_barrier",
    "init",
    "initialized",
    "load_model",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "shutdown",
    "size",
]

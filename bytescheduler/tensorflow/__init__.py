"""TensorFlow 2 and Keras: sums and means of gradients as operations of the graph.

Change two lines of a training script::

    import bytescheduler.tensorflow as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(optimizer)

Importing this starts nothing, and imports nothing of another framework.  The first import compiles
the operations against the installed TensorFlow.
"""

try:
    import tensorflow  # before all that needs it
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ModuleNotFoundError(
        "TensorFlow is not installed: install it first, as its own page says, such as "
        "python -m pip install tensorflow-cpu==2.15.1",
        name="tensorflow",
    ) from error

if tuple(int(number) for number in tensorflow.__version__.split(".")[:2]) < (2, 15):
    raise ImportError(
        f"TensorFlow {tensorflow.__version__}: bytescheduler.tensorflow needs 2.15 or newer; "
        "install a newer TensorFlow, as its own page says"
    )

from bytescheduler.errors import Error
from bytescheduler.tensorflow._api.basics import (
    init,
    initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from bytescheduler.tensorflow._api.broadcast import (
    allgather_object,
    broadcast,
    broadcast_object,
    broadcast_variables,
)
from bytescheduler.tensorflow._api.push_pull import Average, Sum, allreduce, push_pull
from bytescheduler.tensorflow._gradients.optimizer import DistributedOptimizer
from bytescheduler.tensorflow._gradients.tape import DistributedGradientTape
from bytescheduler.tensorflow._library.loading import is_building, operations
from bytescheduler.tensorflow._strategies.cross_device_ops import CrossDeviceOps
from bytescheduler.tensorflow._sums.compression import Compression

__all__ = [
    "Average",
    "Compression",
    "CrossDeviceOps",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Sum",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "init",
    "initialized",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "shutdown",
    "size",
]

# AutoGraph lets an exception with this attribute pass; it makes a `StagingError` of all else.
Error.ag_pass_through = True  # type: ignore[attr-defined]

if not is_building():
    operations()

"""Calls of the operations, in graph functions and eagerly."""

import sys
from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.session import job_number
from bytescheduler.tensorflow._library.loading import operations

__all__ = ["Target", "await_sum", "broadcast", "handle_of", "new_anchor", "push_pull", "start"]

_MOST_SIGNED = 2**63


class Target:
    """The key of a tensor, its name in errors, and the variable that it belongs to, if any.

    `anchor` is a handle of no variable: it keeps the tensor apart from the order of others.
    """

    __slots__ = ("anchor", "key", "name", "priority", "variable")

    def __init__(
        self,
        key: int,
        name: str,
        variable: Any = None,  # noqa: ANN401
        priority: int = 0,
        anchor: Optional[tf.Tensor] = None,
    ) -> None:
        self.key = key if key < _MOST_SIGNED else key - 2 * _MOST_SIGNED  # TensorFlow's are signed
        self.name = name
        self.variable = variable
        self.priority = priority
        self.anchor = anchor


def handle_of(variable: Any) -> tf.Tensor:  # noqa: ANN401
    """Return the resource handle of a variable, which orders an operation with its uses only."""
    inner = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)
    copies = getattr(inner, "values", None)  # a strategy has them on several devices
    return (copies[0] if isinstance(copies, tuple) else inner).handle


def new_anchor(name: str) -> tf.Tensor:
    """Return a handle of no variable, for sums of a tensor that wait for no other tensor."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.raw_ops.VarHandleOp(dtype=tf.uint8, shape=[], shared_name=name)


def _handles(targets: Sequence[Target]) -> List[tf.Tensor]:
    handles = [
        target.anchor if target.variable is None else handle_of(target.variable)
        for target in targets
    ]
    return [handle for handle in handles if handle is not None]


def _check_not_compiled() -> None:
    """Raise UsageError if XLA is to compile the graph that is made now."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if type(caller).__module__.startswith("tensorflow.") and getattr(
            caller, "_jit_compile", False
        ):
            raise UsageError(
                "XLA is to compile this function, and does not know bytescheduler's operations; "
                "pass jit_compile=False to tf.function, or to compile() of the model, for which "
                "Keras 3 chooses XLA by itself where there is a GPU",
                5,
            )
        frame = frame.f_back


def push_pull(tensors: Sequence[tf.Tensor], targets: Sequence[Target], workers: int) -> List[Any]:
    """Return the sum of each tensor over all workers, divided by `workers` unless that is 0.

    In a graph function each tensor has an operation of its own, so that it travels as soon as it
    is there.  Eagerly all are one operation, as each operation waits there.
    """
    if not tensors:
        return []
    if not tf.executing_eagerly():
        _check_not_compiled()
    if not tf.executing_eagerly() and len(tensors) > 1:
        return [
            push_pull([tensor], [target], workers)[0] for tensor, target in zip(tensors, targets)
        ]
    return list(
        operations().bs_push_pull(
            tensors=list(tensors),
            handles=_handles(targets),
            keys=[target.key for target in targets],
            names=[target.name for target in targets],
            job=job_number(),
            priorities=[target.priority for target in targets],
            workers=workers,
        )
    )


def broadcast(tensors: Sequence[tf.Tensor], targets: Sequence[Target], root: int) -> List[Any]:
    """Return worker `root`'s value of each tensor, bit for bit; otherwise as `push_pull`."""
    if not tensors:
        return []
    if not tf.executing_eagerly():
        _check_not_compiled()
    if not tf.executing_eagerly() and len(tensors) > 1:
        return [broadcast([tensor], [target], root)[0] for tensor, target in zip(tensors, targets)]
    return list(
        operations().bs_broadcast(
            tensors=list(tensors),
            handles=_handles(targets),
            keys=[target.key for target in targets],
            names=[target.name for target in targets],
            job=job_number(),
            root=root,
        )
    )


def start(tensor: tf.Tensor, target: Target, workers: int) -> None:
    """Begin a push-pull of a variable's tensor, which a later `await_sum` ends."""
    _check_not_compiled()
    operations().bs_start(
        tensor=tensor,
        handle=handle_of(target.variable),
        key=target.key,
        label=target.name,
        job=job_number(),
        priority=target.priority,
        workers=workers,
    )


def await_sum(
    target: Target, dtype: tf.DType, shape: tf.TensorShape
) -> Tuple[tf.Tensor, tf.Tensor]:
    """Return the sum that `start` began and whether there is one; without, it has any numbers."""
    result = operations().bs_await(
        handle=handle_of(target.variable), T=dtype, shape=shape, key=target.key
    )
    return result.sum, result.is_there

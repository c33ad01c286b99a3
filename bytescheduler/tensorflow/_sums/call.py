"""Calls of the operations, in graph functions and eagerly."""

import sys
from typing import Any, List, Sequence

import tensorflow as tf

from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.session import job_number
from bytescheduler.tensorflow._library.loading import operations

__all__ = ["Target", "broadcast", "handle_of", "push_pull"]

_MOST_SIGNED = 2**63


class Target:
    """The key of a tensor, its name in errors, and the variable that it belongs to, if any."""

    __slots__ = ("key", "name", "priority", "variable")

    def __init__(self, key: int, name: str, variable: Any = None, priority: int = 0) -> None:  # noqa: ANN401
        self.key = key if key < _MOST_SIGNED else key - 2 * _MOST_SIGNED  # TensorFlow's are signed
        self.name = name
        self.variable = variable
        self.priority = priority


def handle_of(variable: Any) -> tf.Tensor:  # noqa: ANN401
    """Return the resource handle of a variable, which orders an operation with its uses only."""
    inner = variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)
    return inner.handle


def _handles(targets: Sequence[Target]) -> List[tf.Tensor]:
    return [handle_of(target.variable) for target in targets if target.variable is not None]


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
                "pass jit_compile=False to tf.function, or to compile() of the model",
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

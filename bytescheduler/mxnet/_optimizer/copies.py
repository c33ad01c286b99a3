"""An optimizer as text: its registered name and plain values, so that reading it runs nothing."""

import json
from typing import Any, Dict

import mxnet as mx
import numpy as np

from bytescheduler.mxnet._types import Optimizer

_PLAIN = (bool, int, float, str, type(None))
# MXNet's own pickles leave this out too: it holds the weights themselves.
_LEFT_OUT = "param_dict"


def _refuse(optimizer: Optimizer, reason: str) -> mx.base.MXNetError:
    return mx.base.MXNetError(
        f"{type(optimizer).__name__} cannot be handed to the other workers, as {reason}: call "
        "set_optimizer on every worker"
    )


def _attributes(thing: object) -> Dict[str, object]:
    return {name: value for name, value in vars(thing).items() if name != _LEFT_OUT}


def _flat(value: object) -> object:
    """Return `value` as JSON can say it: containers and schedulers as [kind, content]."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if type(value) is dict:
        return ["dict", [[_flat(key), _flat(item)] for key, item in value.items()]]
    if type(value) in (list, tuple):
        return [type(value).__name__, [_flat(item) for item in value]]  # type: ignore[attr-defined]
    if _scheduler(type(value).__name__) is type(value):
        return ["scheduler", [type(value).__name__, _flat(_attributes(value))]]
    raise TypeError(type(value).__name__)


def _scheduler(name: object) -> "type | None":
    kind = vars(mx.lr_scheduler).get(str(name))
    is_scheduler = isinstance(kind, type) and issubclass(kind, mx.lr_scheduler.LRScheduler)
    return kind if is_scheduler else None


def _made(kind: Any, attributes: object) -> Any:  # noqa: ANN401 - optimizers have no types
    if not isinstance(attributes, dict):
        raise ValueError("its attributes are no dict")
    thing = kind.__new__(kind)
    vars(thing).update(attributes)
    return thing


def _deep(value: object) -> object:
    """Return what `_flat` made `value` of."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "dict":
        return {_deep(key): _deep(item) for key, item in content}
    if kind in ("list", "tuple"):
        items = [_deep(item) for item in content]
        return items if kind == "list" else tuple(items)
    scheduler = _scheduler(content[0])
    if kind != "scheduler" or scheduler is None:
        raise ValueError(f"it holds a {kind}")
    return _made(scheduler, _deep(content[1]))


def optimizer_to_text(optimizer: Optimizer) -> str:
    """Return `optimizer` as text.

    Raises
    ------
    MXNetError
        Its class is not registered with MXNet, or it holds something else than plain values,
        containers of them, and MXNet's learning-rate schedulers.
    """
    name = type(optimizer).__name__.lower()
    if mx.optimizer.Optimizer.opt_registry.get(name) is not type(optimizer):
        raise _refuse(optimizer, "it is no class that mx.optimizer.create knows by its name")
    try:
        return json.dumps([name, _flat(_attributes(optimizer))])
    except TypeError as error:
        raise _refuse(optimizer, f"it holds a {error}") from None


def optimizer_from_text(text: str) -> Optimizer:
    """Return a copy of the optimizer that `optimizer_to_text` made `text` of.

    Only classes that are registered in this process are made, and not through their constructors.

    Raises
    ------
    MXNetError
        `text` is something else, or this process does not know the class.
    """
    try:
        name, attributes = json.loads(text)
        kind = mx.optimizer.Optimizer.opt_registry.get(str(name))
        if kind is None:
            raise ValueError(f"this worker has no optimizer named {name!r}")
        optimizer = _made(kind, _deep(attributes))
        optimizer.param_dict = {}
        # One dict under two names, which text does not say.
        optimizer._index_update_count = optimizer._all_index_update_counts[0]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise mx.base.MXNetError(
            f"another worker's optimizer cannot be taken over: {error}; call set_optimizer on "
            "every worker"
        ) from error
    return optimizer

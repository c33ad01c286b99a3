"""Optimizers as the servers take them: a name and numbers, or a pickle."""

import copy
import pickle
from typing import Dict, NamedTuple, Optional, Tuple

import mxnet as mx

from bytescheduler.mxnet._types import Optimizer

# The C++ optimizer's name of an option, and the name that mx.optimizer has for it.
_Options = Dict[str, str]
_MOMENTUM: _Options = {"momentum": "momentum"}

# By the very class: one that derives from these may compute something else.
_NATIVE: Dict[type, Tuple[str, _Options]] = {
    mx.optimizer.SGD: ("sgd", _MOMENTUM),
    mx.optimizer.NAG: ("nag", _MOMENTUM),
    mx.optimizer.Adam: ("adam", {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"}),
    mx.optimizer.AdaGrad: ("adagrad", {"epsilon": "float_stable_eps"}),
    mx.optimizer.RMSProp: (
        "rmsprop",
        {name: name for name in ("gamma1", "gamma2", "epsilon", "centered", "clip_weights")},
    ),
    mx.optimizer.Ftrl: ("ftrl", {"lamda1": "lamda1", "beta": "beta"}),
    mx.optimizer.Signum: ("signum", {"momentum": "momentum", "wd_lh": "wd_lh"}),
}


# Every supported Python reads it.
_PROTOCOL = 4


class ForServers(NamedTuple):
    """The description of an update for servers.

    Parameters
    ----------
    text : str
        Such as ``sgd momentum=0.9``; ``hosted NAME`` if only their Python can do it.
    pickle : bytes
        For their Python; may be empty if the text says all.
    native : bool
        Whether the text says all.
    """

    text: str
    pickle: bytes
    native: bool


def for_servers(optimizer: Optimizer) -> ForServers:
    """Return the description of the updates that `optimizer` makes.

    Raises
    ------
    MXNetError
        The servers cannot do what `optimizer` does.
    """
    text = _native_text(optimizer)
    if text is not None:
        return ForServers(text, _pickled_if_possible(optimizer), True)
    kind = type(optimizer)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__ == "__main__":
        raise mx.base.MXNetError(
            f"dist_async: the servers cannot import {name}: put the class into a module that they "
            "can import too, and name the module in BYTESCHEDULER_TRUSTED_MODULES on the servers; "
            "or use dist_sync, which runs any optimizer on the workers"
        )
    try:
        return ForServers(f"hosted {name}", _pickled(optimizer), False)
    except Exception as error:
        raise mx.base.MXNetError(
            f"dist_async: {name} cannot be pickled for the servers ({error}); use dist_sync, "
            "which runs any optimizer on the workers"
        ) from error


def _pickled(optimizer: Optimizer) -> bytes:
    """Return a pickle without the scheduler: each push brings the learning rate of its moment."""
    copied = copy.copy(optimizer)
    copied.lr, copied.lr_scheduler = optimizer.learning_rate, None
    return pickle.dumps(copied, _PROTOCOL)


def _pickled_if_possible(optimizer: Optimizer) -> bytes:
    try:
        return _pickled(optimizer)
    except Exception:
        return b""


def _native_text(optimizer: Optimizer) -> Optional[str]:
    native = _NATIVE.get(type(optimizer))
    if native is None:
        return None
    name, options = native
    values = {
        "learning_rate": optimizer.learning_rate,
        "wd": optimizer.wd,
        "rescale_grad": optimizer.rescale_grad,
        # None, or 0, does not clip: mx.optimizer reads it so.
        "clip_gradient": optimizer.clip_gradient or None,
        **{option: getattr(optimizer, attribute) for option, attribute in options.items()},
    }
    words = [f"{option}={float(v)!r}" for option, v in values.items() if v is not None]
    return " ".join([name, *words])

"""Optimizers as the servers take them: a name and numbers."""

from typing import Dict, Tuple

import mxnet as mx

from bytescheduler.mxnet._types import Optimizer

# What the C++ optimizer calls an option, and what mx.optimizer calls it.
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


def optimizer_text(optimizer: Optimizer) -> str:
    """Return what tells a server to update as `optimizer` does, such as ``sgd momentum=0.9``.

    Raises
    ------
    MXNetError
        The servers cannot do what `optimizer` does.
    """
    known = _NATIVE.get(type(optimizer))
    if known is None:
        names = ", ".join(kind.__name__ for kind in _NATIVE)
        raise mx.base.MXNetError(
            f"dist_async: the servers cannot run {type(optimizer).__name__}, only {names} "
            "(and no class derived from them); use one of these, or dist_sync, which runs any "
            "optimizer on the workers"
        )
    name, options = known
    values = {
        "learning_rate": optimizer.learning_rate,
        "wd": optimizer.wd,
        "rescale_grad": optimizer.rescale_grad,
        # As mx.optimizer reads it: none, or 0, does not clip.
        "clip_gradient": optimizer.clip_gradient or None,
        **{option: getattr(optimizer, attribute) for option, attribute in options.items()},
    }
    words = [f"{option}={float(v)!r}" for option, v in values.items() if v is not None]
    return " ".join([name, *words])

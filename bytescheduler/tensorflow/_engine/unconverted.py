"""Functions that AutoGraph leaves alone."""

from typing import Any, Callable, TypeVar, cast

import tensorflow as tf

__all__ = ["unconverted"]

_F = TypeVar("_F", bound=Callable[..., Any])


def unconverted(function: _F) -> _F:
    """Return `function` so that AutoGraph rewrites neither it nor the functions that it calls.

    A rewrite takes seconds, and turns errors into other ones.
    """
    return cast(_F, tf.autograph.experimental.do_not_convert(function))

"""Errors of the engine as MXNet users know them."""

import contextlib
import re
from typing import Iterator, Mapping

import mxnet as mx

from bytescheduler.errors import ConfigError, Error

_KEY = re.compile(r"\bkey([ =])(\d+)")


def with_names(text: str, names: Mapping[int, object]) -> str:
    """Return `text` with the user's keys in place of the engine's, where `names` has them."""

    def name(match: "re.Match[str]") -> str:
        number = int(match[2])
        return f"key{match[1]}{names.get(number, number)!r}"

    return _KEY.sub(name, text)


@contextlib.contextmanager
def as_mxnet_errors(names: Mapping[int, object]) -> Iterator[None]:
    """Turn the engine's errors into MXNetError; a wrong setting stays a ConfigError."""
    try:
        yield
    except ConfigError:
        raise
    except Error as error:
        raise mx.base.MXNetError(with_names(str(error), names)) from error

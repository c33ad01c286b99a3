"""Errors of the engine as MXNet users know them."""

import contextlib
import re
from typing import Iterator, Mapping

import mxnet as mx

from bytescheduler.errors import ConfigError, Error

_KEY = re.compile(r"\bkey([ =])(\d+)")


def with_names(text: str, names: Mapping[int, object]) -> str:
    """Return `text` with the user's names in place of the engine's keys."""

    def name(match: "re.Match[str]") -> str:
        return f"key{match[1]}{names.get(int(match[2]), match[2])}"

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

"""A folder for what a command keeps while it runs."""

import contextlib
import pathlib
import tempfile
from typing import Iterator

from bytescheduler.errors import Error

__all__ = ["temporary_folder"]


@contextlib.contextmanager
def temporary_folder() -> "Iterator[pathlib.Path]":
    """Lend a folder that is gone at the end.

    Raises
    ------
    Error
        There is no place for one.
    """
    try:
        folder = tempfile.TemporaryDirectory()
    except OSError as error:
        raise Error(
            f"no temporary folder: {error.strerror}; let TMPDIR name a folder that can be written"
        ) from error
    with folder as path:
        yield pathlib.Path(path)

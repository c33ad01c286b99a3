"""Files that are replaced whole or not at all, so that a failure leaves the older file."""

import contextlib
import os
import stat
import sys
from typing import BinaryIO, Iterator, Union

__all__ = ["is_stdout", "replaced"]


def is_stdout(path: str) -> bool:
    """Return whether this process's stdout goes there."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(1))
    return False


def _is_written_directly(path: str) -> bool:
    of_a_process = os.path.realpath(os.path.dirname(path)).startswith("/proc/")  # /dev/fd/3
    is_no_file = os.path.exists(path) and not os.path.isfile(path)
    return of_a_process or is_no_file or path.endswith("/") or not path


@contextlib.contextmanager
def replaced(path: "Union[str, os.PathLike[str]]") -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once it is written; a failure leaves `path`.

    A `path` that is no regular file, such as a pipe or a device, is written to directly; where it
    is this process's stdout, through `sys.stdout`, which knows how a process ends that cannot
    print.  A symbolic link stays, and so do the permissions of a file that is there.

    Raises
    ------
    OSError
        It cannot be written; `path` is as it was.
    """
    name = os.fspath(path)
    if is_stdout(name):
        yield sys.stdout.buffer
        return
    beside = ""
    try:
        if _is_written_directly(name):
            with open(name, "wb") as file:
                yield file
            return
        target = os.path.realpath(name)
        beside = os.path.join(os.path.dirname(target), f".bytescheduler-{os.urandom(8).hex()}")
        with open(beside, "xb") as file:
            with contextlib.suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(os.stat(target).st_mode))
            yield file
        os.replace(beside, target)
    except OSError as error:
        if error.filename in (None, beside):
            error.filename, error.filename2 = name, None
        raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)

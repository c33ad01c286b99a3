"""Loads the operations into TensorFlow, and connects them to a worker."""

import ctypes
import functools
import os
import pathlib
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from bytescheduler._native import Gate, c_api
from bytescheduler._settings import Settings
from bytescheduler.tensorflow._library.compiling import CannotCompile, Target, cached

__all__ = ["connect", "held", "installed", "interrupt", "is_building", "operations"]

_MESSAGE_BYTES = 1024
_CAPSULE = b"bytescheduler.c_api"
_BUILD = b"bytescheduler.tensorflow.build"


class _Error(ctypes.Structure):
    """See bs_error in c_api.h."""

    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * _MESSAGE_BYTES)]


class _OtherTable(Exception):
    """A library was compiled for another version of this package."""


class _Library(NamedTuple):
    operations: Any  # TensorFlow's functions for them
    functions: ctypes.CDLL


def installed() -> Target:
    """Return the TensorFlow of this process, to compile against."""
    return Target(tf.__version__, tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags())


def is_building() -> bool:
    """Return whether this process compiles the operations, so that nothing may be loaded yet."""
    try:
        words = pathlib.Path("/proc/self/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return _BUILD in words or b"-m" + _BUILD in words


def _failed(reason: object) -> ImportError:
    return ImportError(
        f"bytescheduler.tensorflow needs its operations for TensorFlow {tf.__version__}: {reason}"
    )


@functools.lru_cache(maxsize=None)
def _library() -> _Library:
    chosen = Settings.read().tf_op
    try:
        path = pathlib.Path(chosen) if chosen else cached(installed(), os.environ)
    except CannotCompile as error:
        raise _failed(error) from None
    try:
        loaded = _Library(tf.load_op_library(str(path)), ctypes.CDLL(str(path)))
        _connect(loaded, None, 0)
    except (OSError, AttributeError, tf.errors.OpError, _OtherTable) as error:
        place = f"BYTESCHEDULER_TF_OP={chosen}" if chosen else str(path)
        cure = (
            "make the file anew by python -m bytescheduler.tensorflow.build --out FILE, or unset "
            "BYTESCHEDULER_TF_OP"
            if chosen
            else "remove the file and import again"
        )
        reason = str(getattr(error, "message", error)).partition("\n")[0]
        raise _failed(f"{place} does not load ({reason}); {cure}") from None
    return loaded


def operations() -> Any:  # noqa: ANN401 - TensorFlow makes this module at run time
    """Return the module with `bs_push_pull` and the others; the first call loads them.

    Raises
    ------
    ImportError
        They cannot be compiled, or do not load.
    """
    return _library().operations


def connect(gate: Optional[Gate], job: int = 0) -> None:
    """Let the operations of a job start behind `gate` from now on, or fail if it is None.

    Operations have the number of the job in which they were made.
    """
    _connect(_library(), gate, job)


def _connect(library: _Library, gate: Optional[Gate], job: int) -> None:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    function = library.functions.bs_tf_join  # a library of another kind or version lacks it
    function.argtypes = [
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(_Error))
    ]
    error = _Error()
    address = None if gate is None else gate.address
    if function(get(c_api(), _CAPSULE), address, job, ctypes.byref(error)) != 0:
        raise _OtherTable(error.message.decode())


def interrupt() -> None:
    """End all operations for TensorFlow with an error; the engine goes on with the sums."""
    _library().functions.bs_tf_interrupt()


def held() -> int:
    """Return how many sums were begun by `bs_start` that no `bs_await` has taken."""
    function = _library().functions.bs_tf_held
    function.restype = ctypes.c_uint64
    return int(function())

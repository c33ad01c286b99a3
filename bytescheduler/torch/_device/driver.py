"""The driver's library of CUDA, loaded when a tensor on a GPU comes, without any header."""

import ctypes
from typing import Callable

from bytescheduler.errors import UsageError

__all__ = ["Driver"]

_LIBRARY = "libcuda.so.1"
_ABSENT = (
    "{name}: it is on a GPU, and NVIDIA's driver library cannot be used ({error}); install the "
    "driver, or move the tensor to the CPU"
)


class Driver:
    """Calls C functions from a stream's place in the work of a GPU.

    Parameters
    ----------
    name : str
        The tensor that needs it; errors name it.
    load : callable, optional
        Loads a shared library.

    Raises
    ------
    UsageError
        The library is missing, or too old.
    """

    def __init__(self, name: str, load: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> None:
        try:
            library = load(_LIBRARY)
            self._launch = library.cuLaunchHostFunc
            self._text = library.cuGetErrorString
        except (OSError, AttributeError) as error:
            raise UsageError(_ABSENT.format(name=name, error=error), 5) from error
        pointer = ctypes.c_void_p
        self._launch.argtypes = [pointer, pointer, pointer]
        self._launch.restype = ctypes.c_int
        self._text.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]

    def launch(self, stream: int, function: int, argument: int) -> None:
        """Let a thread of the driver call `function` when the work on `stream` is done.

        Raises
        ------
        RuntimeError
            The driver's own error, as PyTorch raises those of CUDA.
        """
        code = self._launch(stream, function, argument)
        if code != 0:
            text = ctypes.c_char_p()
            self._text(code, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise RuntimeError(f"CUDA error {code} in cuLaunchHostFunc: {reason}")

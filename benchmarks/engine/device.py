"""A device that takes time instead of computing, as operations in MXNet's engine.

See benchmarks/engine/engine_device.h, which -DBS_BUILD_BENCHMARKS=ON builds as a library.
"""

import ctypes
import pathlib
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from mxnet.ndarray import NDArray

LIBRARY = "build/benchmarks/libengine_device.so"


class _Layer(ctypes.Structure):
    _fields_ = (
        ("reads", ctypes.c_void_p),
        ("writes", ctypes.c_void_p),
        ("duration_ns", ctypes.c_int64),
        ("reads_floats", ctypes.c_uint64),
        ("writes_floats", ctypes.c_uint64),
        ("expected", ctypes.c_float),
        ("value", ctypes.c_float),
    )


class Device:
    """Layers in the order of the calls, each as soon as the one before and what it reads is over.

    Parameters
    ----------
    library : str
        Where the library lies.

    Raises
    ------
    SystemExit
        There is no such file.
    """

    def __init__(self, library: str) -> None:
        from mxnet.base import _LIB, check_call

        path = pathlib.Path(library)
        if not path.exists():
            raise SystemExit(f"--device {library}: no such file; docs/results/method.md builds it")
        self._lib = ctypes.CDLL(str(path.resolve()))
        self._lib.bs_device_open.restype = ctypes.c_void_p
        self._lib.bs_device_open.argtypes = [ctypes.c_void_p] * 3
        self._lib.bs_device_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Layer)]
        self._lib.bs_device_wrong.restype = ctypes.c_uint64
        self._lib.bs_device_wrong.argtypes = [ctypes.c_void_p]
        self._lib.bs_device_close.argtypes = [ctypes.c_void_p]
        names = ("MXEnginePushAsyncND", "MXNDArrayGetData", "MXGetLastError")
        addresses = [ctypes.cast(getattr(_LIB, name), ctypes.c_void_p) for name in names]
        self._device = self._lib.bs_device_open(*addresses)
        self._check = check_call

    @property
    def wrong(self) -> int:
        """How many layers have found another sum than they should."""
        return int(self._lib.bs_device_wrong(self._device))

    def _run(self, layer: _Layer) -> None:
        self._check(self._lib.bs_device_run(self._device, layer))

    def forward(
        self, seconds: float, weight: "NDArray", expected: float, output: "Optional[NDArray]" = None
    ) -> None:
        """Call for a layer that waits for `weight`, whose numbers are all as `expected`.

        `output`, if any, waits for it.
        """
        layer = _Layer(reads=weight.handle, reads_floats=weight.size, expected=expected)
        layer.duration_ns = round(seconds * 1e9)
        if output is not None:
            layer.writes = output.handle
        self._run(layer)

    def backward(self, seconds: float, gradient: "NDArray", value: float) -> None:
        """Call for a layer that sets every number of `gradient` to `value`."""
        layer = _Layer(writes=gradient.handle, writes_floats=gradient.size, value=value)
        layer.duration_ns = round(seconds * 1e9)
        self._run(layer)

    def close(self) -> None:
        """End it; every layer is over."""
        self._lib.bs_device_close(self._device)

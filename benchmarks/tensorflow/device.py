"""A device that takes time instead of computing, as operations of TensorFlow (layers.cc).

    python -m benchmarks.tensorflow.device layers.so

compiles them as the package compiles its own ones.
"""

import ctypes
import os
import pathlib
import sys
from typing import Any, List

import tensorflow as tf

from bytescheduler._advise.models import Step
from bytescheduler.tensorflow._library.compiling import compile_to
from bytescheduler.tensorflow._library.loading import installed, operations

SOURCE = pathlib.Path(__file__).with_name("layers.cc")
_MOST_LOSSES = 1 << 16


class Device:
    """The layers of a process.

    Parameters
    ----------
    library : path
        The compiled operations.
    """

    def __init__(self, library: pathlib.Path) -> None:
        self._operations = tf.load_op_library(str(library))
        self._functions = ctypes.CDLL(str(library))
        self._functions.bs_benchmark_wrong.restype = ctypes.c_int64
        self._functions.bs_benchmark_losses.restype = ctypes.c_int64
        self._functions.bs_benchmark_begin.argtypes = [ctypes.c_int64, ctypes.c_int64]
        self._functions.bs_benchmark_losses.argtypes = [
            ctypes.POINTER(ctypes.c_double),
            ctypes.c_int64,
        ]
        tf.RegisterGradient("BsBenchmarkForward")(self._gradient)

    def _gradient(self, op: Any, gradient: tf.Tensor) -> List[tf.Tensor]:  # noqa: ANN401
        result = self._operations.bs_benchmark_backward(
            gradient=gradient,
            y=op.outputs[0],
            layer=op.get_attr("layer"),
            elements=op.inputs[1].shape.num_elements(),
            backward_s=op.get_attr("backward_s"),
        )
        return [result.of_x, result.of_weight]

    def begin(self, workers: int, rank: int) -> None:
        """Say whose gradients are summed, before the first step."""
        self._functions.bs_benchmark_begin(workers, rank)

    def forward(
        self, x: tf.Tensor, weight: tf.Tensor, step: Step, layer: int, layers: int
    ) -> tf.Tensor:
        """Return `x` when one of the layers would have been computed."""
        return self._operations.bs_benchmark_forward(
            x=x,
            weight=weight,
            layer=layer,
            layers=layers,
            forward_s=step.forward_s,
            backward_s=step.backward_s,
        )

    @property
    def wrong(self) -> int:
        """How many layers have found another sum than they should."""
        return int(self._functions.bs_benchmark_wrong())

    def losses_s(self) -> List[float]:
        """Return the time at which each forward pass has ended."""
        times = (ctypes.c_double * _MOST_LOSSES)()
        count = self._functions.bs_benchmark_losses(times, _MOST_LOSSES)
        return list(times[:count])


def main() -> None:
    """Compile the library, and that of the package."""
    operations()
    compile_to(pathlib.Path(sys.argv[1]), installed(), os.environ, SOURCE)


if __name__ == "__main__":
    main()

"""The dtypes in which a tensor can travel."""

from typing import Optional, Tuple

import tensorflow as tf

from bytescheduler.errors import UsageError

__all__ = ["Compression", "Compressor", "checked"]


class Compressor:
    """Casts wide floats to a dtype before they travel, and sums back.

    Parameters
    ----------
    dtype : DType, optional
        The dtype that travels; None changes nothing.
    """

    def __init__(self, dtype: Optional[tf.DType]) -> None:
        self._dtype = dtype

    def compress(self, tensor: tf.Tensor) -> Tuple[tf.Tensor, Optional[tf.DType]]:
        """Return the tensor that travels, and the context for `decompress`."""
        if self._dtype is None or tensor.dtype not in (tf.float32, tf.float64):
            return tensor, None
        return tf.cast(tensor, self._dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, context: Optional[tf.DType]) -> tf.Tensor:
        """Return the tensor that `tensor` stands for."""
        return tensor if context is None else tf.cast(tensor, context)

    def dtype_of(self, dtype: tf.DType) -> tf.DType:
        """Return the dtype in which tensors of a dtype travel."""
        wide = dtype in (tf.float32, tf.float64)
        return self._dtype if self._dtype is not None and wide else dtype


class Compression:
    """The forms in which tensors travel."""

    none = Compressor(None)
    fp16 = Compressor(tf.float16)
    bf16 = Compressor(tf.bfloat16)


def checked(compression: object) -> Compressor:
    """Return `compression`, if it is a `Compressor`.

    Raises
    ------
    UsageError
        It is none.
    """
    if isinstance(compression, Compressor):
        return compression
    raise UsageError(
        f"compression={compression!r}: want Compression.none, .fp16 or .bf16 of "
        "bytescheduler.tensorflow",
        5,
    )

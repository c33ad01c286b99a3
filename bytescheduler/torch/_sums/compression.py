"""The ways in which a tensor can travel in fewer bytes."""

from typing import Dict, Optional, Tuple, Type, Union, cast

import torch

from bytescheduler._native import Coding
from bytescheduler._process.say import plain
from bytescheduler.errors import UsageError

__all__ = [
    "Chosen",
    "Compression",
    "Compressor",
    "chosen",
    "coded",
    "is_elementwise",
    "name_of",
    "scaled",
]


class Compressor:
    """Encodes tensors before they travel, and decodes sums; this class changes nothing."""

    # The engine's own coding of float32, besides.
    coding: Optional[Coding] = None
    # Several tensors may travel as one; a class that is derived says so anew.
    elementwise = True

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        """Return the tensor that travels, and the context for `decompress`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Optional[torch.dtype]) -> torch.Tensor:
        """Return the tensor that `tensor` stands for."""
        return tensor if context is None else tensor.to(context)


def is_elementwise(compressor: Type[Compressor]) -> bool:
    """Return whether `compressor` changes each element by itself, as far as is known."""
    return bool(vars(compressor).get("elementwise", False))


def _narrow(tensor: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
    wide = tensor.dtype in (torch.float32, torch.float64)
    return (tensor.to(dtype), tensor.dtype) if wide else (tensor, None)


class _Half(Compressor):
    """Sends float16 in place of wider floats."""

    elementwise = True

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        """See `Compressor`."""
        return _narrow(tensor, torch.float16)


class _BFloat(Compressor):
    """Sends bfloat16 in place of wider floats."""

    elementwise = True

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        """See `Compressor`."""
        return _narrow(tensor, torch.bfloat16)


class Compression:
    """The compressors that there are."""

    none: Type[Compressor] = Compressor
    fp16: Type[Compressor] = _Half
    bf16: Type[Compressor] = _BFloat

    @staticmethod
    def two_bit(threshold: float = 0.5) -> Type[Compressor]:
        """Return a compressor that sends two bits for each float32.

        Each stands for 0 or for plus or minus `threshold`; the rest is sent in later rounds.

        Raises
        ------
        ConfigError
            The threshold is not larger than 0.
        """
        coding = Coding("2bit", {"threshold": str(threshold)})
        return type("TwoBit", (Compressor,), {"coding": coding})


# An argument `compression`: a compressor, its name, or None for none.
Chosen = Union[Type[Compressor], Compressor, str, None]
_NAMED: Dict[str, Type[Compressor]] = {
    "none": Compression.none,
    "fp16": Compression.fp16,
    "bf16": Compression.bf16,
}


def chosen(compression: Chosen) -> Type[Compressor]:
    """Return the compressor that an argument `compression` means.

    Raises
    ------
    UsageError
        It is none, and no name of one.
    """
    if compression is None:
        return Compression.none
    if isinstance(compression, str):
        if compression in _NAMED:
            return _NAMED[compression]
    elif isinstance(compression, Compressor) and not vars(compression):
        return type(compression)  # `Compression.fp16()`
    elif hasattr(compression, "coding") and hasattr(compression, "compress"):
        return cast(Type[Compressor], compression)
    shown = plain(repr(compression))
    raise UsageError(
        f"compression={shown}: want Compression.none, .fp16, .bf16 or .two_bit(threshold), or a "
        "class that is derived from Compression.none",
        5,
    )


def coded(coding: Coding, *, widens: bool) -> Type[Compressor]:
    """Return a compressor that sends codes of the engine, also of half precision if it `widens`."""

    class Coded(Compressor):
        """Sends float32, which the engine codes."""

        @staticmethod
        def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
            """See `Compressor`."""
            half = widens and tensor.dtype in (torch.float16, torch.bfloat16)
            return (tensor.float(), tensor.dtype) if half else (tensor, None)

    Coded.coding = coding
    return Coded


def name_of(compressor: Type[Compressor]) -> str:
    """Return a text that tells compressors apart, beside their codings."""
    for name, named in _NAMED.items():
        if named is compressor:
            return f"Compression.{name}"
    return getattr(compressor, "__qualname__", type(compressor).__qualname__)


def scaled(compressor: Type[Compressor], before: float, after: float) -> Type[Compressor]:
    """Return `compressor` for tensors that are multiplied before they travel, and after."""
    if before == 1 and after == 1:
        return compressor

    class Scaled(Compressor):
        """Multiplies tensors of floats at both ends of their way."""

        coding = compressor.coding
        elementwise = is_elementwise(compressor)

        @staticmethod
        def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
            """See `Compressor`."""
            return compressor.compress(tensor * before)

        @staticmethod
        def decompress(tensor: torch.Tensor, context: Optional[torch.dtype]) -> torch.Tensor:
            """See `Compressor`."""
            return compressor.decompress(tensor, context) * after

    Scaled.__qualname__ = f"{name_of(compressor)} scaled by {before:g} and {after:g}"
    return Scaled

"""The choice of how gradients travel, which depends on their size: the arguments of a script."""

from typing import Mapping, NamedTuple, Optional, Tuple, Type

import torch

from bytescheduler._compression.params import Compression as Params
from bytescheduler._compression.params import compression_of
from bytescheduler._native import Coding
from bytescheduler._process.say import plain
from bytescheduler._settings import Settings
from bytescheduler.errors import UsageError
from bytescheduler.torch._sums.compression import (
    Chosen,
    Compression,
    Compressor,
    chosen,
    coded,
    name_of,
    scaled,
)

__all__ = ["ARGUMENTS", "Choice", "CompressionParams", "choice_of"]

# The arguments that a choice is made of, for errors.
ARGUMENTS = "compression or compression_params"

CompressionParams = Optional[Mapping[str, object]]
_HALVES = (torch.float16, torch.bfloat16)


class Choice(NamedTuple):
    """The compressors of gradients.

    Parameters
    ----------
    plain : Compressor
        That of bundles, and of tensors for which `coding_for` returns None.
    params : Compression
        The dictionary of the script, if it has given one.
    factors : tuple of float
        Tensors are multiplied by the first before they travel, and by the second after.
    """

    plain: Type[Compressor] = Compression.none
    params: Params = Params()
    factors: Tuple[float, float] = (1.0, 1.0)

    def coding_for(self, size_bytes: int, element_bytes: int) -> Optional[Coding]:
        """Return the coding of the script's dictionary for a tensor of such elements."""
        return self.params.coding_for(size_bytes, element_bytes)

    def is_coded(self, size_bytes: int, element_bytes: int) -> bool:
        """Return whether the dictionary has a coding for a tensor of such elements."""
        return self.coding_for(size_bytes, element_bytes) is not None

    def compressor_for(self, size_bytes: int, element_bytes: int) -> Type[Compressor]:
        """Return the compressor of a tensor of such elements."""
        coding = self.coding_for(size_bytes, element_bytes)
        if coding is None:
            return self.plain
        return scaled(coded(coding, widens=self.params.widens), *self.factors)

    def cut_for(self, size_bytes: int, element_bytes: int) -> Optional[Coding]:
        """Return the coding for which the key of a tensor is cut when it is declared.

        Two bits fit any partitions.
        """
        return self.coding_for(size_bytes, element_bytes) if self.params.widens else None

    @property
    def mu(self) -> float:
        """The momentum that gradients get before they travel; 0: none."""
        return self.params.mu or 0.0

    def scaled(self, before: float, after: float) -> "Choice":
        """Return the choice for tensors that are multiplied before they travel, and after."""
        return self._replace(plain=scaled(self.plain, before, after), factors=(before, after))

    def check_dtype(
        self, dtype: torch.dtype, size_bytes: int, element_bytes: int, name: str
    ) -> None:
        """Raise UsageError, with `name`, if a tensor of such elements cannot travel so."""
        coding = self.coding_for(size_bytes, element_bytes)
        dtypes = (torch.float32, *_HALVES) if self.params.widens else (torch.float32,)
        if coding is not None and dtype not in dtypes:
            raise UsageError(
                f"{name}: {dtype} cannot be {coding}, only {', '.join(map(str, dtypes))}; convert "
                "it, or leave compression_params out",
                5,
            )
        if self.mu and not dtype.is_floating_point:
            raise UsageError(
                f"{name}: {dtype} has no momentum 'nesterov' of compression_params, only floats "
                "have; convert it, or leave the momentum out",
                5,
            )

    def __str__(self) -> str:
        """Return a text that tells choices apart."""
        params = self.params
        if not params.is_on:
            coding = "" if self.plain.coding is None else f", {self.plain.coding}"
            return f"{name_of(self.plain)}{coding}"
        least, mu = params.least_bytes, f" of {self.mu!r}" if self.mu else ""
        size = f", from {least} bytes on (BYTESCHEDULER_MIN_COMPRESS)" if least else ""
        scale = "" if self.plain is Compression.none else f", {name_of(self.plain)}"
        return f"{params}{mu}{size}{scale}"


def choice_of(compression: Chosen, params: CompressionParams) -> Choice:
    """Return the choice that the arguments `compression` and `compression_params` make.

    Raises
    ------
    UsageError
        One of them makes no sense, or both are given.
    ConfigError
        The dictionary makes no sense.
    """
    compressor = chosen(compression)
    if params is None:
        return Choice(compressor)
    if compressor is not Compression.none:
        raise UsageError(
            f"compression={plain(name_of(compressor))} beside compression_params="
            f"{plain(repr(params))}: pass one of them",
            5,
        )
    if not isinstance(params, Mapping):
        raise UsageError(
            f"compression_params={plain(repr(params))}: want a dictionary, such as "
            "{'compressor': 'bf16'}",
            5,
        )
    asked = compression_of(params, Settings.read().min_compress_bytes)
    if asked.has_momentum and asked.mu is None:
        raise UsageError(
            "compression_params: momentum 'nesterov' has no number: add 'mu': 0.9",
            5,
        )
    return Choice(params=asked)

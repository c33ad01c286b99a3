"""Compressors that send some elements of each unit: `topk` and `randomk`."""

import functools
import logging
from typing import Dict, NamedTuple, Optional, Tuple

from bytescheduler._compression.numbers import number_of, text_of
from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError

__all__ = ["PICKING", "Picks", "picks_of"]

_log = logging.getLogger(__name__)
PICKING = ("topk", "randomk")
# A whole k is that of a partition of BytePS, which has 4,096,000 bytes of float32.
_LARGEST_ELEMENTS = 1_024_000
_FLOAT32_BYTES = 4
_MOST = 2**32 - 1


class Picks(NamedTuple):
    """The codings of all tensors, by their sizes."""

    name: str
    k: float  # a whole number from 1 on, or a fraction
    options: Tuple[Tuple[str, str], ...]  # the others

    @property
    def largest(self) -> Coding:
        """Return the coding of the largest tensors."""
        return self.of(_LARGEST_ELEMENTS)

    def of(self, elements: int) -> Coding:
        """Return the coding of a tensor of one element or more."""
        k = repr(self.k)
        if self.k >= 1:
            k = f"{int(self.k)}/{min(elements, _LARGEST_ELEMENTS)}"
        return Coding(self.name, {"k": k, **dict(self.options)})

    def coding_for(self, elements: int, size_bytes: int) -> Optional[Coding]:
        """Return the coding of a tensor; None, with a warning, if its codes are not smaller."""
        return _coding_for(self, elements, size_bytes)


@functools.lru_cache(maxsize=None)  # so that a job says it once for each size
def _coding_for(picks: Picks, elements: int, size_bytes: int) -> Optional[Coding]:
    if elements == 0:
        return None
    coding = picks.of(elements)
    coded_bytes = coding.sizes(elements * _FLOAT32_BYTES)[0]
    if coded_bytes < size_bytes:
        return coding
    _log.warning(
        "compressor %r with k %s makes %d bytes of the %d bytes of a tensor: tensors of that size "
        "travel as they are",
        picks.name,
        f"{picks.k:.12g}",
        coded_bytes,
        size_bytes,
    )
    return None


def picks_of(name: str, options: Dict[str, object]) -> Picks:
    """Take k out of a user's options, and return the codings that all of them ask for."""
    k = options.pop("k", None)
    if k is None:
        raise ConfigError(
            f"compressor {name!r} needs k: how many elements of a tensor travel, such as 1000, or "
            "which fraction, such as 0.01",
            1,
        )
    number = number_of(k)
    if number is None or not _is_share(number):
        raise ConfigError(
            f"gradient compression has k {k!r}: want a whole number from 1 to {_MOST}, or a "
            "fraction between 0 and 1",
            1,
        )
    if "fp16" in options and "ef" not in options:
        # Without error feedback randomk multiplies by the inverse of the share first.
        share = "" if name == "topk" else " k" if number < 1 else " k / n of n elements"
        _log.warning(
            "compressor %r with fp16 cuts a value above 65,504%s to that: with 'ef': 'vanilla' the "
            "rest comes later",
            name,
            share,
        )
    texts = tuple((key, text_of(value)) for key, value in options.items())
    return Picks(name, number, texts)


def _is_share(k: float) -> bool:
    """Return whether k is a whole number of elements or a fraction of them."""
    return 0 < k < 1 or (1 <= k <= _MOST and k.is_integer())

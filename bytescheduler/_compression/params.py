"""Dictionaries of gradient compression, for all frameworks: MXNet's own form, and BytePS's."""

import logging
from typing import Dict, Mapping, NamedTuple, Optional

from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError

__all__ = ["Compression", "compression_of"]

_log = logging.getLogger(__name__)
# MXNet's own method, which takes every size, dtype float32 only, and other thresholds at any time.
_TWO_BIT = 1
# Codes of these are numbers that say that a gradient overflows.
_CASTS = ("bf16", "fp16")
_USELESS = ("k", "fp16")  # BytePS's scripts hand them on with every compressor


class Compression(NamedTuple):
    """How gradients are compressed."""

    coding: Optional[Coding] = None  # None: not at all
    least_bytes: int = 0  # smaller tensors go plain
    widens: bool = False  # half precision is coded as float32
    says_overflow: bool = False  # codes of gradients that are not finite are not finite

    @property
    def is_two_bit(self) -> bool:
        """True for MXNet's own method."""
        return self.coding is not None and self.coding.codec == _TWO_BIT

    def coding_for(self, size_bytes: int) -> Optional[Coding]:
        """Return the coding of a tensor of that size."""
        return self.coding if size_bytes >= self.least_bytes else None


def compression_of(params: Mapping[str, object], least_bytes: int) -> Compression:
    """Return the compression that a user's dictionary asks for.

    Parameters
    ----------
    params : mapping
        ``{"type": "2bit", "threshold": 0.5}``, or ``{"compressor": "bf16", "pull": "plain"}``,
        where None, "" and False count as absent.  It stays as it is.
    least_bytes : int
        The size from which on the second form takes effect.

    Raises
    ------
    ConfigError
        A key or a value makes no sense.
    """
    asked = {str(name): value for name, value in params.items()}
    if "compressor" not in asked and "fp16" not in asked:
        texts = {name: str(value) for name, value in asked.items()}
        name = texts.pop("type", None)
        if name in _CASTS:
            raise ConfigError(
                f"gradient compression has type {name!r}, which is a compressor: write "
                f"{{'compressor': {name!r}}}",
                1,
            )
        return Compression(Coding(name, texts))
    used = {name: value for name, value in asked.items() if not _is_absent(value)}
    if "type" in used:
        raise ConfigError(
            f"gradient compression has type {used['type']!r} beside BytePS's keys, such as "
            f"compressor {used.get('compressor')!r}: leave out the type, or all of them",
            1,
        )
    return _of_byteps_form(used, least_bytes)


def _is_absent(value: object) -> bool:
    """Return whether BytePS's scripts write this for a key that is not in use."""
    return value is None or value is False or (isinstance(value, str) and not value)


def _of_byteps_form(used: Dict[str, object], least_bytes: int) -> Compression:
    name = used.pop("compressor", None)
    halves = used.get("fp16")
    if halves is not None and halves is not True:
        raise ConfigError(f"gradient compression has fp16 {halves!r}: want True or False", 1)
    if halves and name in (None, "fp16"):
        name = used.pop("fp16") and "fp16"
    for key in _USELESS:
        if key in used:
            value = used.pop(key)
            _log.warning("compressor %r has no use for %s, so %r is left out", name, key, value)
    if name is not None:
        coding = Coding(str(name), {key: str(value) for key, value in used.items()})
        is_cast = name in _CASTS
        return Compression(coding, least_bytes, widens=is_cast, says_overflow=is_cast)
    if not used:
        return Compression()
    key, value = next(iter(used.items()))
    raise ConfigError(
        f"gradient compression has {key} {value!r} without a compressor: want 'compressor': 'bf16' "
        "or 'fp16' beside it, or leave it out",
        1,
    )

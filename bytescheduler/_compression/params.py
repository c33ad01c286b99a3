"""Dictionaries of gradient compression, for all frameworks: MXNet's own form, and BytePS's."""

import logging
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from bytescheduler._compression.numbers import number_of, plain_of, text_of
from bytescheduler._compression.picks import PICKING, Picks, picks_of
from bytescheduler._native import Coding
from bytescheduler.errors import ConfigError

__all__ = ["FOLLOWING", "Compression", "by_coding", "compression_of"]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)
# MXNet's own method, which takes every size, dtype float32 only, and other thresholds at any time.
_TWO_BIT = 1
_TYPE = "2bit"
_COMPRESSORS = ("onebit", *PICKING, "dithering", "int8", "bf16", "fp16")
_NAMES = ", ".join(map(repr, _COMPRESSORS[:-1])) + f" or {_COMPRESSORS[-1]!r}"
# Any of them tells BytePS's form.
_BYTEPS = ("compressor", "fp16", "momentum", "mu", "ef", "scaling")
# BytePS's scripts hand both on with every compressor; these have a use for some.
_USELESS = ("k", "fp16")
_USED = {"dithering": ("k",), **dict.fromkeys(PICKING, _USELESS)}
_LACKS = f"'compressor': {_NAMES}"

# Feedbacks that follow the learning rate, by their numbers, as a user writes them.
FOLLOWING = {2: "corrected", 3: "sparse"}


class Compression(NamedTuple):
    """How gradients are compressed."""

    coding: Optional[Coding] = None  # None: not at all
    least_bytes: int = 0  # smaller tensors go plain
    widens: bool = False  # half precision is coded as float32
    says_overflow: bool = False  # codes of gradients that are not finite are not finite
    has_momentum: bool = False  # Nesterov's, before gradients are pushed, at every size
    mu: Optional[float] = None  # its number; None: the optimizer's
    picks: Optional[Picks] = None  # the codings of each size; `coding` is that of the largest

    def __str__(self) -> str:
        """Return what gradients are, such as "compressed to bf16"."""
        words = [str(self.coding)] if self.coding is not None else []
        words += ["with momentum 'nesterov'"] if self.has_momentum else []
        return ", ".join(words) or "not compressed"

    @property
    def is_on(self) -> bool:
        """True if what is pushed is not the gradient itself."""
        return self.coding is not None or self.has_momentum

    @property
    def is_two_bit(self) -> bool:
        """True for MXNet's own method."""
        return self.coding is not None and self.coding.codec == _TWO_BIT

    def without_coding(self) -> "Compression":
        """Return the part of this that is no coding."""
        return Compression(has_momentum=self.has_momentum, mu=self.mu)

    def coding_for(self, size_bytes: int, element_bytes: int) -> Optional[Coding]:
        """Return the coding of a tensor of that size, which has elements of `element_bytes`."""
        if size_bytes < self.least_bytes:
            return None
        if self.picks is not None:
            return self.picks.coding_for(size_bytes // element_bytes, size_bytes)
        return self.coding


def compression_of(params: Mapping[str, object], least_bytes: int) -> Compression:
    """Return the compression that a user's dictionary asks for.

    Parameters
    ----------
    params : mapping
        ``{"type": "2bit", "threshold": 0.5}``, or ``{"compressor": "onebit", "scaling": True,
        "ef": "vanilla", "momentum": "nesterov", "mu": 0.9}``, where None, "" and False count as
        absent.  It stays as it is.
    least_bytes : int
        The size from which on the second form takes effect.

    Raises
    ------
    ConfigError
        A key or a value makes no sense.
    """
    asked = {str(name): plain_of(value) for name, value in params.items()}
    used = {name: value for name, value in asked.items() if not _is_absent(value)}
    has_byteps_keys = any(name in asked for name in _BYTEPS)
    byteps_key = next((name for name in _BYTEPS if name in used), None)
    if not has_byteps_keys or ("type" in used and byteps_key is None):
        texts = {name: str(value) for name, value in (used if has_byteps_keys else asked).items()}
        return Compression(_of_type(_type_of(texts), texts))
    if "type" in used:
        raise ConfigError(
            f"gradient compression has type {used['type']!r} beside BytePS's keys, such as "
            f"{byteps_key} {asked[str(byteps_key)]!r}: leave out the type, or all of them",
            1,
        )
    return _of_byteps_form(used, least_bytes)


def by_coding(
    tensors: Iterable[_T], coding_of: Callable[[_T], Optional[Coding]]
) -> Dict[Optional[Coding], List[_T]]:
    """Return the tensors of each coding, in their order."""
    groups: Dict[Optional[Coding], List[_T]] = {}
    for tensor in tensors:
        groups.setdefault(coding_of(tensor), []).append(tensor)
    return groups


def _type_of(texts: Dict[str, str]) -> str:
    """Take the type of MXNet's own form out of a dictionary."""
    name = texts.pop("type", None)
    if name in _COMPRESSORS:
        raise ConfigError(
            f"gradient compression has type {name!r}, which is a compressor: write "
            f"{{'compressor': {name!r}}}",
            1,
        )
    if name is None:
        has = f" and has {', '.join(map(repr, texts))} alone" if texts else ""
        raise ConfigError(
            f"gradient compression needs a type or a compressor{has}: want 'type': '2bit', or "
            f"{_LACKS}",
            1,
        )
    return name


def _of_type(name: str, options: Dict[str, str]) -> Coding:
    """Return a coding of a type that the engine has, which may be the user's own."""
    try:
        return Coding(name, options)
    except ConfigError as error:
        if name == _TYPE or "Unknown type" not in str(error):
            raise
        raise ConfigError(
            f"Unknown type for gradient compression {name!r}: want {_TYPE!r}, or in place of a "
            f"type {_LACKS}",
            1,
        ) from error


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
    keys = [key for key in _USELESS if key in used and key not in _USED.get(str(name), ())]
    useless = {key: used.pop(key) for key in keys}
    has_momentum, mu = _momentum_of(used)
    compression = Compression(has_momentum=has_momentum, mu=mu)
    if name is not None and name not in (_TYPE, *_COMPRESSORS):
        raise ConfigError(
            f"Unknown compressor of gradients {name!r}: want {_NAMES}, or MXNet's own "
            f"{{'type': {_TYPE!r}}}",
            1,
        )
    if name is not None:
        picks = picks_of(str(name), used) if name in PICKING else None
        coding = (
            Coding(str(name), {key: text_of(value) for key, value in used.items()})
            if picks is None
            else picks.largest
        )
        compression = compression._replace(coding=coding, least_bytes=least_bytes, picks=picks)
        if compression.is_two_bit and has_momentum:
            raise ConfigError(
                "gradient compression has momentum 'nesterov' beside two bits, which are MXNet's "
                f"own and have none: leave it out, or want {_LACKS}",
                1,
            )
        if not compression.is_two_bit:
            compression = compression._replace(widens=True, says_overflow=True)
    elif used:
        key, value = next(iter(used.items()))
        raise ConfigError(
            f"gradient compression has {key} {value!r} without a compressor: want {_LACKS} beside "
            "it, or leave it out",
            1,
        )
    if name is not None and useless:
        pairs = " and ".join(f"{key} {value!r}" for key, value in useless.items())
        _log.warning("compressor %r has no use for %s: left out", name, pairs)
    if name == "onebit" and "scaling" not in used:
        _log.warning(
            "compressor 'onebit' without scaling makes every gradient 1 or -1, so that each step "
            "moves every weight by the learning rate: 'scaling': True keeps their mean"
        )
    return compression


def _momentum_of(used: Dict[str, object]) -> Tuple[bool, Optional[float]]:
    """Take the keys of momentum out of `used`: whether there is one, and its number."""
    kind, mu = used.pop("momentum", None), used.pop("mu", None)
    if kind not in (None, "nesterov"):
        raise ConfigError(f"gradient compression has momentum {kind!r}: want 'nesterov'", 1)
    if mu is None:
        return kind is not None, None
    if kind is None:
        raise ConfigError(
            f"gradient compression has mu {mu!r} without 'momentum': 'nesterov': want both", 1
        )
    number = number_of(mu)
    if number is None or not 0 < number < 1:
        raise ConfigError(
            f"gradient compression has mu {mu!r}: want a number between 0 and 1, such as 0.9", 1
        )
    return True, number

"""Dithering in numpy, from its specification: codes, their values and residuals.

``dither_model.py`` alone prints the rows of tests/codec/goldens/dithering_golden.h.
"""

import zlib
from typing import Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

UNIT = 65536
SERVER = 0xFFFFFFFF  # in the place of a rank
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

Floats = np.ndarray


class Method(NamedTuple):
    """What a user's dictionary says; the defaults, but for the seed, are the engine's."""

    k: int
    partition: str = "linear"
    normalize: str = "max"
    bucket: int = 2048
    seed: int = 1  # an engine without one takes the job's number

    @property
    def width(self) -> int:
        """Return the bits of a code."""
        return next(width for width in (2, 4, 8, 16) if 1 << (width - 1) > self.k)


INT8 = Method(127, bucket=256)


class Place(NamedTuple):
    """Where in the job a tensor is coded."""

    key: int
    round: int
    rank: int


def _mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31


def draws(method: Method, place: Place, unit: int, count: int) -> np.ndarray:
    """Return a number below 65,536 for each element of a unit."""
    state = 0
    for word in (method.seed, place.key, unit, place.round, place.rank):
        state = _mixed(state + _GOLDEN + word & _WORD)
    words = []
    for _ in range(8):
        state = state + _GOLDEN & _WORD
        words.append(_mixed(state))
    first, second = np.array(words[::2], np.uint64), np.array(words[1::2], np.uint64)
    shifts = [np.uint64(shift) for shift in (23, 17, 26)]
    steps = []
    for _ in range(-(-count // 16)):
        steps.append(first + second)
        mixed = first ^ (first << shifts[0])
        mixed ^= second ^ (mixed >> shifts[1]) ^ (second >> shifts[2])
        first, second = second, mixed
    return np.concatenate(steps).view("<u2")[:count].astype(np.float64)


def norms_of(p: Floats, method: Method) -> Floats:
    """Return the norm of each bucket of a unit."""
    norms = []
    for at in range(0, len(p), method.bucket):
        sizes = np.abs(p[at : at + method.bucket])
        if method.normalize == "max":
            norms.append(sizes.max())
            continue
        squares = sizes.astype(np.float64) ** 2
        lanes = np.zeros(8)
        for row in np.concatenate([squares, np.zeros(-len(squares) % 8)]).reshape(-1, 8):
            lanes += row
        total = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
            (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
        )
        most = float(np.finfo(np.float32).max)
        norms.append(np.float32(min(np.sqrt(total), most)))
    return np.array(norms, np.float32)


def _levels(share: Floats, drawn: np.ndarray, method: Method) -> np.ndarray:
    """Return the level of each element whose share of the norm is `share`."""
    s = method.k
    if method.partition == "linear":
        scaled = share * np.float32(s)
        below = np.floor(scaled)
        chance = (scaled - below).astype(np.float64)
        return below.astype(np.int64) + (chance * 65536 > drawn + 0.5)
    ladder = np.array([0.0] + [2.0 ** (i - s) for i in range(1, s + 1)])
    below = np.searchsorted(ladder, share.astype(np.float64), side="right") - 1
    gap = np.append(np.diff(ladder), 1.0)[below]
    chance = (share.astype(np.float64) - ladder[below]) / gap
    return below + (chance * 65536 > drawn + 0.5)


def _values(levels: np.ndarray, signs: np.ndarray, norms: Floats, method: Method) -> Floats:
    s = method.k
    if method.partition == "linear":
        shares = levels.astype(np.float32) / np.float32(s)
    else:
        shares = np.where(levels > 0, 2.0 ** (levels - s), 0.0).astype(np.float32)
    each = np.repeat(norms, method.bucket)[: len(levels)]
    return np.where(signs, -(shares * each), shares * each).astype(np.float32)


def _packed(codes: np.ndarray, width: int) -> bytes:
    bits = codes[:, None] >> np.arange(width) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def coded_unit(p: Floats, method: Method, place: Place, unit: int) -> Tuple[bytes, Floats]:
    """Return the codes of what is in a unit, and their values."""
    count = len(p)
    if not np.isfinite(p).all():
        norms = np.full(-(-count // method.bucket), np.nan, "<f4")
        codes = np.zeros(count, np.int64)
        return norms.tobytes() + _packed(codes, method.width), np.full_like(p, np.nan)
    norms = norms_of(p, method)
    each = np.repeat(norms, method.bucket)[:count]
    share = np.abs(p) / np.where(each > 0, each, np.float32(1))
    levels = _levels(share, draws(method, place, unit, count), method)
    signs = np.signbit(p) & (levels > 0)
    codes = levels | signs.astype(np.int64) << (method.width - 1)
    return (
        norms.astype("<f4").tobytes() + _packed(codes, method.width),
        _values(levels, signs, norms, method),
    )


class Coder:
    """A worker, or a server, that codes a key; `keeps` says whether it has a residual."""

    def __init__(self, method: Method, keeps: bool, count: int) -> None:
        self.method = method
        self.residual: Optional[Floats] = np.zeros(count, np.float32) if keeps else None

    def code(self, values: Floats, place: Place, ratio: float = 1) -> Tuple[bytes, Floats]:
        """Return the codes of a tensor, and what all others decode."""
        codes: List[bytes] = []
        sent = np.empty_like(values)
        for unit in range(-(-len(values) // UNIT)):
            part = slice(unit * UNIT, (unit + 1) * UNIT)
            p, kept = values[part], None
            if self.residual is not None:
                kept = np.float32(ratio) * self.residual[part]
                p = p + kept
            unit_codes, sent[part] = coded_unit(p, self.method, place, unit)
            codes.append(unit_codes)
            if self.residual is not None:
                self.residual[part] = p - sent[part] if np.isfinite(p).all() else kept
        return b"".join(codes), sent


# -- golden codes --------------------------------------------------------------------------------

METHODS = [
    Method(7, "linear", "max", 2048, 1),
    Method(1, "linear", "l2", 64, 3),
    Method(127, "linear", "max", 256, 5),
    Method(100, "linear", "l2", 65536, (1 << 64) - 1),
    Method(1000, "linear", "l2", 192, 7),
    Method(3, "natural", "max", 2048, 11),
    Method(7, "natural", "l2", 128, 13),
    Method(30, "natural", "max", 4096, 17),
]
SIZES = (1, 7, 8, 9, 65535, 65536, 65537)
INPUTS = ("drawn", "zeros", "minus", "subnormal", "equal", "large", "infinite", "nan")
PLACE = Place(key=(1 << 63) + 5, round=3, rank=2)


def golden_input(kind: str, count: int) -> Floats:
    """Return numbers that C++ makes too."""
    index = np.arange(count, dtype=np.uint64)
    drawn = (index * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(1 << 24)
    values = (drawn.astype(np.float64) - (1 << 23)).astype(np.float32) * np.float32(2.0**-20)
    if kind == "zeros":
        return np.zeros(count, np.float32)
    if kind == "minus":
        return np.full(count, -0.0, np.float32)
    if kind == "subnormal":
        return ((drawn % np.uint64(13)).astype(np.float64) - 6).astype(np.float32) * np.float32(
            2.0**-149
        )
    if kind == "equal":
        return np.where(index % np.uint64(3) == 0, -0.75, 0.75).astype(np.float32)
    if kind == "large":
        return values * np.float32(2.0**124)
    if kind in ("infinite", "nan"):
        values[count // 2] = np.inf if kind == "infinite" else np.nan
    return values


def golden_rows() -> Iterator[str]:
    """Yield a row for each method, input and size: sums of codes and residuals of two rounds."""
    for number, method in enumerate(METHODS):
        for kind_number, kind in enumerate(INPUTS):
            sizes = SIZES if kind in ("drawn", "nan") and number < 6 else (9, 1000)
            for count in sizes:
                coder = Coder(method, keeps=True, count=count)
                codes, _ = coder.code(golden_input(kind, count), PLACE)
                more, _ = coder.code(golden_input("drawn", count), PLACE, 0.3)
                assert coder.residual is not None
                sums = [zlib.crc32(text) for text in (codes, more)]
                sums.append(zlib.crc32(coder.residual.astype("<f4").tobytes()))
                numbers = ", ".join(f"0x{value:08x}" for value in sums)
                yield f"    {{{number}, {kind_number}, {count}, {numbers}}},"


if __name__ == "__main__":
    print("\n".join(golden_rows()))

"""A model of topk and randomk in numpy, which shares nothing with the engine."""

import math
from fractions import Fraction
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

UNIT = 65536
SERVER = 0xFFFFFFFF  # the rank of a coder of sums
_LARGEST_TENSOR = 1_024_000  # a whole k is that of 4,096,000 bytes
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15

Floats = np.ndarray


class Method(NamedTuple):
    """What a user asks for."""

    name: str  # "topk" or "randomk"
    k: "int | float"
    halves: bool = False
    seed: int = 0


class Place(NamedTuple):
    """Where the elements at hand are."""

    key: int
    round: int
    unit: int = 0
    rank: int = 0
    workers: int = 1


def picks(k: "int | float", count: int, tensor: int) -> int:
    """Return how many elements of a unit of `count` travel, in a tensor of that many elements."""
    share = (
        Fraction(k) if k < 1 else min(Fraction(int(k), min(tensor, _LARGEST_TENSOR)), Fraction(1))
    )
    return max(1, (math.ceil(share * 2**32) * count) >> 32)


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def drawn(seed: int, place: Place, count: int, number: int) -> List[int]:
    """Return the elements of a unit that travel, in their order."""
    state = 0
    for value in (seed, place.key, place.unit, place.round):
        state = _mix((state + _GOLDEN + value) & _MASK)
    s0, s1 = _mix((state + _GOLDEN) & _MASK), _mix((state + 2 * _GOLDEN) & _MASK)

    def draw() -> int:
        nonlocal s0, s1
        t, s = s0, s1
        t = (t ^ (t << 23)) & _MASK
        t ^= t >> 17
        s0, s1 = s, t ^ s ^ (s >> 26)
        return (s1 + s) & _MASK

    a = draw() % count
    while math.gcd(a, count) != 1:
        a = draw() % count
    b = draw() % count
    return [(a * j + b) % count for j in range(number)]


def largest(p: Floats, number: int) -> List[int]:
    """Return the largest elements, of equal ones the first, in the order of their indices."""
    order = np.argsort(-np.abs(p), kind="stable")
    return sorted(int(index) for index in order[:number])


def code_unit(
    method: Method, place: Place, p: Floats, number: int, *, keeps: bool
) -> Tuple[bytes, Floats]:
    """Return a unit's codes, and their values."""
    count = len(p)
    is_topk = method.name == "topk"
    divisor = 1
    while method.halves and place.rank == SERVER and divisor < place.workers:
        divisor *= 2
    factor = np.float32(1)
    if not is_topk and not keeps and place.rank != SERVER:
        factor = np.float32(count / number)
    finite = bool(np.isfinite(p).all())
    if not is_topk:
        chosen = drawn(method.seed, place, count, number)
    else:
        chosen = largest(p, number) if finite else list(range(number))
    with np.errstate(all="ignore"):
        most = np.float32(65504 * divisor) if method.halves else np.finfo(np.float32).max
        exact = np.clip(p[chosen] * factor, -most, most)
        if method.halves:
            codes = (exact.astype(np.float64) / divisor).astype(np.float16)
            sent = codes.astype(np.float32) * np.float32(divisor)
        else:
            codes = sent = exact
    values = np.zeros_like(p)
    if finite:
        values[chosen] = sent
    else:
        chosen = list(range(number)) if is_topk else chosen
        codes = np.full(number, np.nan, codes.dtype)
        values[:] = np.nan
    indices = np.array(chosen, np.uint16).tobytes() if is_topk else b""
    return indices + codes.tobytes(), values


class Coder:
    """A coder of a tensor, a worker's or a server's, which may keep a residual."""

    def __init__(self, method: Method, count: int, *, keeps: bool) -> None:
        self.method, self.keeps = method, keeps
        self.residual = np.zeros(count, np.float32)

    def code(
        self,
        in_: Floats,
        place: Place,
        ratio: "float | np.float32" = 1,
        tensor: Optional[int] = None,
    ) -> Tuple[bytes, Floats]:
        """Return the codes of a partition that begins at `place`, and their values."""
        parts, values = [], []
        for at in range(0, len(in_), UNIT):
            part = slice(at, at + UNIT)
            p = in_[part]
            with np.errstate(all="ignore"):
                kept = np.float32(ratio) * self.residual[part]
                if self.keeps:
                    p = p + kept
            number = picks(self.method.k, len(p), len(in_) if tensor is None else tensor)
            here = place._replace(unit=place.unit + at // UNIT)
            codes, sent = code_unit(self.method, here, p, number, keeps=self.keeps)
            parts.append(codes)
            values.append(sent + np.float32(0))  # -0 is 0
            if np.isfinite(sent).all():
                self.residual[part] = p - sent
            else:
                self.residual[part] = np.where(np.isfinite(kept), kept, 0)
        return b"".join(parts), np.concatenate(values)

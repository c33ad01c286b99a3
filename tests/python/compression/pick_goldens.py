"""Golden codes of topk and randomk, by the model in numpy: ``pick_goldens.py > pick_goldens.h``.

The header belongs to ``tests/codec``, whose tests make the same gradients.
"""

import pathlib
import sys
import zlib
from typing import Iterator, NamedTuple

import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(TESTS / "e2e" / "workers" / "direct"))

from pick_model import SERVER, Coder, Floats, Method, Place  # noqa: E402

HEADER = TESTS / "codec" / "goldens" / "pick_goldens.h"
_PLACE = Place(key=7, round=3, unit=2, workers=3)
_SEED = 11
_HEAD = """\
// Codes and residuals of topk and randomk, by the model in tests/e2e/workers/direct/pick_model.py.
// Written by tests/python/compression/pick_goldens.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bs::codec::testing {

struct PickGolden {
  const char* codec;
  const char* k;
  const char* fp16;
  int pattern;
  size_t count;
  float ratio;  // 0: there is no residual
  bool of_sum;
  uint32_t codes;  // CRC-32, as of the others
  uint32_t residual;
  uint32_t values;
};

inline constexpr PickGolden kPickGoldens[] = {
"""
_FOOT = """\
};

}  // namespace bs::codec::testing
"""


class Case(NamedTuple):
    """A row of the header."""

    method: Method
    pattern: int
    count: int
    ratio: float
    of_sum: bool = False


def numbers(pattern: int, count: int, seed: int) -> Floats:
    """Return gradients; ``tests/codec/picks_test.cc`` makes the same."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) + np.uint64(seed << 32)
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    low = x.astype(np.uint32)
    sign = low & np.uint32(0x80000000)
    fields = [((x >> np.uint64(at)) & np.uint64(0xFFFF)).astype(np.int64) for at in (0, 16, 32, 48)]
    usual = ((np.stack(fields).sum(axis=0) - 131070) / 16384).astype(np.float32)
    if pattern == 1:
        return sign.view(np.float32)  # zeros
    if pattern == 2:
        return (low & np.uint32(0x807FFFFF)).view(np.float32)  # subnormal
    if pattern == 3:
        return (sign | np.uint32(0x40000000)).view(np.float32)  # 2 and -2
    if pattern == 4:
        usual[count // 2] = np.inf
    if pattern == 5:
        usual[count - 1] = np.nan
    if pattern == 6:
        return np.round(usual)
    if pattern == 7:
        return (low & np.uint32(0xFF7FFFFF)).view(np.float32)  # of any size
    return usual


def cases() -> Iterator[Case]:
    for count in (1, 7, 8, 9, 65535, 65536, 65537):
        is_small = count < 10
        for name in ("topk", "randomk"):
            for halves in (False, True):
                method = Method(name, 0.25 if is_small else 0.01, halves, _SEED)
                for pattern in range(8) if is_small else (0, 1, 3, 4, 7):
                    yield Case(method, pattern, count, 0.5)
                yield Case(method, 0, count, 0)
                yield Case(method, 0, count, 1, of_sum=True)
    for halves in (False, True):
        yield Case(Method("topk", 0.65, halves, _SEED), 6, 70000, 0.3)
        yield Case(Method("randomk", 0.97, halves, _SEED), 6, 70000, 0, of_sum=True)


def row(case: Case) -> str:
    method = case.method
    coder = Coder(method, case.count, keeps=case.ratio != 0)
    if coder.keeps:
        coder.residual = numbers(0, case.count, 5)
    place = _PLACE._replace(rank=SERVER if case.of_sum else 1)
    codes, values = coder.code(numbers(case.pattern, case.count, 3), place, case.ratio)
    if not coder.keeps:
        coder.residual[:] = 0
    sums = [zlib.crc32(data) for data in (codes, coder.residual.tobytes(), values.tobytes())]
    fields = [
        f'"{method.name}"',
        f'"{method.k}"',
        f'"{method.halves}"',
        str(case.pattern),
        str(case.count),
        f"{float(case.ratio)}F",
        str(case.of_sum).lower(),
        *(f"0x{crc:08x}" for crc in sums),
    ]
    return f"    {{{', '.join(fields)}}},\n"


def header() -> str:
    return _HEAD + "".join(map(row, cases())) + _FOOT


if __name__ == "__main__":
    sys.stdout.write(header())

"""A model of scaled onebit in numpy, which shares nothing with the engine."""

from typing import List

import numpy as np

UNIT = 65536

Floats = np.ndarray


def coded(p: Floats) -> Floats:
    """Return the values of a unit's codes."""
    if not np.isfinite(p).all():
        return np.full_like(p, np.nan)
    size = np.abs(p.astype(np.float64))
    rows = np.concatenate([size, np.zeros(-len(size) % 8)]).reshape(-1, 8)
    lanes = np.add.accumulate(rows)[-1]  # row by row
    total = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + (
        (lanes[1] + lanes[5]) + (lanes[3] + lanes[7])
    )
    return np.copysign(np.float32(total / len(p)), p)


def units(values: Floats) -> List[Floats]:
    """Return the parts that have a magnitude each."""
    return [values[at : at + UNIT] for at in range(0, len(values), UNIT)]


class Coder:
    """A worker's, a host's or a server's, which may keep a residual."""

    def __init__(self, count: int, *, keeps: bool) -> None:
        self.keeps = keeps
        self.residual = np.zeros(count, np.float32)

    def code(self, values: Floats, ratio: "float | np.float32" = 1) -> Floats:
        """Return the values of the codes of a tensor."""
        if not self.keeps:
            return np.concatenate([coded(part) for part in units(values)])
        kept = np.float32(ratio) * self.residual
        p = values + kept
        sent = np.concatenate([coded(part) for part in units(p)])
        self.residual = np.where(np.isfinite(sent), p - sent, kept)
        return sent

"""Two-bit compression by its definition: what each rank pushes, and the sums that come of it."""

from typing import Dict, List

import numpy as np

ROUNDS, THRESHOLD = 20, 0.3
SHAPES = {3: (1,), 5: (37,), 7: (5, 7, 2), 9: (400003,)}
Floats = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"


def gradients(rank: int) -> "List[Dict[int, Floats]]":
    """Return what a rank pushes in each round."""
    random = np.random.RandomState(rank)
    return [
        {key: random.normal(0, 0.4, shape).astype(np.float32) for key, shape in SHAPES.items()}
        for _ in range(ROUNDS)
    ]


def expected(workers: int) -> "List[Dict[int, Floats]]":
    """Return the sums by the definition of two-bit compression."""
    threshold = np.float32(THRESHOLD)
    sums: List[Dict[int, Floats]] = []
    residuals = [
        {key: np.zeros(shape, np.float32) for key, shape in SHAPES.items()} for _ in range(workers)
    ]
    given = [gradients(rank) for rank in range(workers)]
    for step in range(ROUNDS):
        sums.append({})
        for key, shape in SHAPES.items():
            total = np.zeros(shape, np.float32)
            for rank in range(workers):
                residual = residuals[rank][key]
                residual += given[rank][step][key]
                sent = np.where(residual >= threshold, threshold, np.float32(0))
                sent = np.where(residual <= -threshold, -threshold, sent)
                residual -= sent
                total += sent
            sums[-1][key] = total
    return sums

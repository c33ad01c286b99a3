"""What stock workers push in each step, and the sums that should come of it."""

from typing import Dict, List

import numpy as np

FLOATS = ["float32", "float64", "float16"]
INTEGERS = ["uint8", "int8", "int32", "int64"]
SHAPES = {3: (4,), 5: (3, 5), 7: (37,), 11: (60, 50), 13: (1,)}  # 11 is cut, if the bound is 1000
STEPS = 4
# What workers push in turns to a dist_async store: kind and shape of each key.
IN_TURNS = {
    **{("dense", key): shape for key, shape in SHAPES.items()},
    **{(kind, key): SHAPES[key] for kind in ("half", "rows", "two bits") for key in (5, 11)},
}
MOMENTUM, THRESHOLD = 0.5, 2.0
Numbers = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"


def numbers(rank: int, step: int, shape: "tuple[int, ...]", dtype: str = "float32") -> Numbers:
    """Return what worker `rank` pushes in `step`; for the initial value it is 100 + rank."""
    random = np.random.RandomState(1000 * rank + step)
    if dtype == "float32":
        return random.uniform(-3, 3, shape).astype(dtype)
    # Whether a stock server sums these in float32 is a variable that it never sets, so their sums
    # are exact in each of the dtypes.
    return (random.randint(0, 30, shape) / (1 if dtype in INTEGERS else 4)).astype(dtype)


def rows_of(
    rank: int, step: int, shape: "tuple[int, ...]"
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the rows that worker `rank` pushes in `step`: none of them now and then."""
    random = np.random.RandomState(1000 * rank + step)
    chosen = np.flatnonzero(random.rand(shape[0]) < 0.4)
    return chosen[:0] if (rank + step) % 3 == 0 else chosen


def sums(dtypes: "List[str]", workers: int = 2) -> "Dict[str, Numbers]":
    """Return what pushes and pulls give."""
    expected = {}
    for dtype in dtypes:
        for key, shape in SHAPES.items():
            expected[f"{dtype} {key} init"] = numbers(100, 0, shape, dtype)
            for step in range(STEPS):
                total = numbers(0, step, shape, dtype)
                for rank in range(1, workers):
                    total = total + numbers(rank, step, shape, dtype)
                expected[f"{dtype} {key} {step}"] = total
    return expected


def sums_of_pushpull(workers: int = 2) -> "Dict[str, Numbers]":
    """Return what broadcast and pushpull give."""
    expected = {}
    for key, shape in SHAPES.items():
        expected[f"broadcast {key}"] = numbers(100, 0, shape)
    for name, total in sums(["float32"], workers).items():
        _, key, step = name.split()
        if step != "init":
            expected[f"pushpull {key} {step}"] = total
    return expected


def sums_of_rows(workers: int = 2) -> "Dict[str, Numbers]":
    """Return what pushing some rows gives to who pulls every second one, the last included."""
    expected = {}
    for key in (5, 11):
        shape = SHAPES[key]
        for step in range(STEPS):
            total = np.zeros(shape, np.float32)
            for rank in range(workers):
                mine = rows_of(rank, step, shape)
                total[mine] += numbers(rank, step, shape)[mine]
            total[np.arange(shape[0] - 2, -1, -2)] = 0
            expected[f"rows {key} {step}"] = total
    return expected


def pushed_in_turn(rank: int, step: int, shape: "tuple[int, ...]") -> Numbers:
    """Return numbers of both signs whose sums are exact in float32, and most in float16."""
    return numbers(rank, step, shape, "float64") - 4


def dtype_of(kind: str) -> str:
    return "float16" if kind == "half" else "float32"


def weights_after_turns(kind: str, shape: "tuple[int, ...]") -> Numbers:
    """Return what SGD with `MOMENTUM` and a rate of -1 makes of all pushes, one after the other."""
    weights = pushed_in_turn(100, 0, shape)
    momentum = np.zeros(shape)
    residuals = np.zeros((2, *shape))
    for step in range(STEPS):
        for rank in range(2):
            rows = rows_of(rank, step, shape) if kind == "rows" else np.arange(shape[0])
            gradient = pushed_in_turn(rank, step, shape)
            if kind == "two bits":
                residuals[rank] += gradient
                passed = abs(residuals[rank]) >= THRESHOLD
                gradient = np.where(passed, np.copysign(THRESHOLD, residuals[rank]), 0)
                residuals[rank] -= gradient
            momentum[rows] = MOMENTUM * momentum[rows] + gradient[rows]
            weights[rows] += momentum[rows]
    return weights.astype(dtype_of(kind))


def after_turns() -> "Dict[str, Numbers]":
    """Return what everyone pulls when all have had their turns."""
    return {
        f"{kind} {key} after turns": weights_after_turns(kind, shape)
        for (kind, key), shape in IN_TURNS.items()
    }

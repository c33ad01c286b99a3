"""A worker without MXNet that goes on from a checkpoint: ``restarted_worker.py FILE STEPS``.

Its weights are the sum of what everybody pushed in all steps, so one that was lost or counted twice
is seen at the end, and every step's own sum is looked at besides.
"""

import ctypes
import os
import pathlib
import sys
import time

from bytescheduler._native import Worker

FLOATS = 5000
FLOAT32 = 0
STEP, WEIGHTS, GRADIENT = range(3)  # the keys
PAUSE_S = 0.02  # the computing of a step


class Array:
    """Floats that all are of one value."""

    def __init__(self, floats: int, value: float = 0) -> None:
        self._floats = (ctypes.c_float * floats)(*[value] * floats)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._floats)

    @property
    def size(self) -> int:
        return ctypes.sizeof(self._floats)

    @property
    def value(self) -> float:
        values = set(self._floats)
        assert len(values) == 1, values
        return values.pop()


def shared(worker: Worker, key: int, array: Array) -> float:
    """Return rank 0's value."""
    worker.broadcast([(key, FLOAT32, array.address, array.size)], owner=array)
    return array.value


def sum_of(worker: Worker, mine: float) -> float:
    send, recv = Array(FLOATS, mine), Array(FLOATS)
    pending = worker.start_push_pull(
        GRADIENT, send.address, recv.address, send.size, owner=(send, recv)
    )
    pending.wait()
    return recv.value


def wanted(step: int, workers: int) -> float:
    return sum(100 * step + rank for rank in range(workers))


def main(file: pathlib.Path, steps: int) -> None:
    begin, before = map(float, file.read_text().split()) if file.exists() else (0, 0)
    worker = Worker.open()
    step = int(shared(worker, STEP, Array(1, begin)))
    weights = shared(worker, WEIGHTS, Array(FLOATS, before))
    shared(worker, GRADIENT, Array(FLOATS))
    print(f"begins with {weights:g} after {step} steps", flush=True)
    while step < steps:
        step += 1
        got = sum_of(worker, 100 * step + worker.rank)
        assert got == wanted(step, worker.num_workers), (step, got)
        weights += got
        if worker.rank == 0:
            temporary = file.with_suffix(".new")
            temporary.write_text(f"{step} {weights}")
            os.replace(temporary, file)
        print(f"step {step} done", flush=True)
        time.sleep(PAUSE_S)
    assert weights == sum(wanted(each, worker.num_workers) for each in range(1, steps + 1))
    worker.close()
    print("every step counts once", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))

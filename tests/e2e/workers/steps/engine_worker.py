"""Worker of a job: engine_worker.py STEPS; a model of three layers on the engine, no framework.

It computes by sleeping.  Its calls have the order of the layers, their priorities are misleading,
and gradients become ready from the last layer to the first.
"""

import ctypes
import sys
import time
from typing import List

from bytescheduler._native import Pending
from bytescheduler._session.direct import open_worker

FLOAT32 = 0
FLOATS = (100_000, 200_000, 100_000)
PRIORITIES = (-2, -1, 0)
FORWARD_S, BACKWARD_S = 0.01, 0.02
COUNT = len(FLOATS)


def main(steps: int) -> None:
    """Train, with one barrier a step."""
    worker = open_worker()
    sent = [(ctypes.c_float * count)() for count in FLOATS]
    received = [(ctypes.c_float * count)() for count in FLOATS]
    owner = (sent, received)
    items = [(key, FLOAT32, ctypes.addressof(a), ctypes.sizeof(a)) for key, a in enumerate(sent)]
    worker.broadcast(items, owner=owner)
    for key in range(COUNT):
        worker.name_key(key, f"layer{key}.weight")
    pending: List[Pending] = []
    for step in range(steps):
        for each in pending:
            each.wait()
        time.sleep(FORWARD_S * COUNT)
        pending.clear()
        for key in reversed(range(COUNT)):
            time.sleep(BACKWARD_S)
            pending.append(
                worker.start_push_pull(
                    key,
                    ctypes.addressof(sent[key]),
                    ctypes.addressof(received[key]),
                    ctypes.sizeof(sent[key]),
                    owner=owner,
                    priority=PRIORITIES[key],
                    called=1 + step * COUNT + key,
                )
            )
    for each in pending:
        each.wait()
    worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))

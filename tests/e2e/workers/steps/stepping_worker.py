"""A worker without MXNet whose steps wait for files: ``stepping_worker.py FOLDER BASE STEPS``.

Step n begins when there is FOLDER/n, and pushes BASE + n.
"""

import pathlib
import sys
import time

from restarted_worker import FLOATS, GRADIENT, Array, shared, sum_of

from bytescheduler._native import Worker


def main(folder: pathlib.Path, base: int, steps: int) -> None:
    worker = Worker.open()
    shared(worker, GRADIENT, Array(FLOATS))
    for step in range(1, steps + 1):
        print(f"step {step} waits", flush=True)
        while not (folder / str(step)).exists():
            time.sleep(0.01)  # the test has no other way in
        got = sum_of(worker, base + step)
        assert got == base + step, (step, got)
    worker.close()
    print("every sum is right", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""A worker without MXNet that sums random floats: ``summing_worker.py ROUNDS [PAUSE_S]``.

Tensors of all ways through a link: some travel together, one is a partition, one is many.  It
prints a digest of the bits of all sums, which are the same however they travelled.
"""

import array
import hashlib
import random
import sys
import time

from bytescheduler._native import Worker

FLOAT32 = 0
FLOATS = [1, 100, 5_000, 60_000, 300_000]


def values(seed: int, count: int) -> "array.array[float]":
    """Return floats between -1 and 1 with random mantissas, quickly."""
    bits = array.array("I", random.Random(seed).randbytes(4 * count))
    return array.array("f", [word / 2**31 - 1 for word in bits])


def main(rounds: int, pause_s: float) -> None:
    worker = Worker.open()
    own = [values(1000 * worker.rank + key, count) for key, count in enumerate(FLOATS)]
    total = [array.array("f", bytes(4 * count)) for count in FLOATS]
    at = [(tensor.buffer_info()[0], 4 * len(tensor)) for tensor in total]
    keys = [(key, FLOAT32, address, size) for key, (address, size) in enumerate(at)]
    worker.broadcast(keys, owner=total)
    print("begins", flush=True)
    digest = hashlib.sha256()
    for step in range(rounds):
        pending = []
        for key, (address, size) in enumerate(at):
            own[key][0] = step / 7  # so that no round's sums are those of another
            source = own[key].buffer_info()[0]
            one = worker.start_push_pull(key, source, address, size, owner=(own, total))
            pending.append(one)
        for one in pending:
            one.wait()
        for tensor in total:
            digest.update(tensor)
        print(f"step {step + 1} done", flush=True)
        time.sleep(pause_s)
    print(f"sums {digest.hexdigest()}", flush=True)
    worker.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)

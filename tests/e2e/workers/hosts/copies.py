"""A worker without a framework that sums a large tensor: ``copies.py SUMS [COMPRESSOR PULL]``.

It checks the sum of whole numbers, and prints a digest of sums of fractions, which all workers must
have alike.
"""

import array
import hashlib
import sys

from bytescheduler._native import Coding, Worker

FLOAT32 = 0
COUNT = 1_000_000  # of 4 bytes each
WHOLE, FRACTIONS = 0, 1

worker = Worker.open()
everyone = worker.num_workers
print(f"rank {worker.rank} is here", flush=True)
own = [
    array.array("f", [worker.rank + 1]) * COUNT,
    array.array("f", [(i % 1009 + 1) / (worker.rank + 3) for i in range(COUNT)]),
]
total = [array.array("f", [0]) * COUNT for _ in own]
size = COUNT * total[0].itemsize
places = [values.buffer_info()[0] for values in total]
worker.broadcast([(key, FLOAT32, place, size) for key, place in enumerate(places)], owner=total)
digest = hashlib.sha256()
coding = Coding(sys.argv[2], {"pull": sys.argv[3]}) if len(sys.argv) > 2 else None
for _ in range(int(sys.argv[1])):
    sums = [
        worker.start_push_pull(
            key, own[key].buffer_info()[0], place, size, owner=(own, total), coding=coding
        )
        for key, place in enumerate(places)
    ]
    for pending in sums:
        pending.wait()
    assert set(total[WHOLE]) == {everyone * (everyone + 1) / 2}, set(total[WHOLE])
    digest.update(total[FRACTIONS].tobytes())
print(f"summed {digest.hexdigest()}", flush=True)
worker.close()

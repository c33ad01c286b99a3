"""A worker without MXNet that sums tensors and says how many bytes it pushed to each server."""

import array
import json
from typing import List

from bytescheduler._native import Worker

FLOAT32 = 0
FLOATS = [100, 20_000, 300_000]
ROUNDS = 2
NAME = "pushed_bytes_total"


def pushed(worker: Worker) -> List[float]:
    """Return the bytes by server."""
    rows = sorted((row.of or 0, row.value) for row in worker.measure() if row.name == NAME)
    return [value for _, value in rows]


worker = Worker.open()
everyone = worker.num_workers
own = [array.array("f", [worker.rank + 1]) * count for count in FLOATS]
total = [array.array("f", [0]) * count for count in FLOATS]
sizes = [count * total[0].itemsize for count in FLOATS]
keys = list(zip(range(len(FLOATS)), (values.buffer_info()[0] for values in total), sizes))
worker.broadcast([(key, FLOAT32, address, size) for key, address, size in keys], owner=total)
before = pushed(worker)  # rank 0 has pushed the initial values
for _ in range(ROUNDS):
    for key, address, size in keys:
        source = own[key].buffer_info()[0]
        worker.start_push_pull(key, source, address, size, owner=(own, total)).wait()
        assert set(total[key]) == {everyone * (everyone + 1) / 2}, set(total[key])
print("pushed " + json.dumps([b - a for a, b in zip(before, pushed(worker))]), flush=True)
worker.close()

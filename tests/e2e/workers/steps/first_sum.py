"""A worker without MXNet that sums once with all others, through every server."""

import array
import time

from bytescheduler._native import Worker

KEY, FLOAT32 = 7, 0
FLOATS_OF_4_KIB = 1024  # a partition

worker = Worker.open()
everyone, count = worker.num_workers, worker.num_servers * FLOATS_OF_4_KIB
own = array.array("f", [worker.rank + 1]) * count
total = array.array("f", [0]) * count
address, size = total.buffer_info()[0], count * total.itemsize
worker.broadcast([(KEY, FLOAT32, address, size)], owner=total)
pending = worker.start_push_pull(KEY, own.buffer_info()[0], address, size, owner=(own, total))
pending.wait()
assert set(total) == {everyone * (everyone + 1) / 2}, set(total)
print(f"summed at {time.monotonic()}", flush=True)
worker.close()

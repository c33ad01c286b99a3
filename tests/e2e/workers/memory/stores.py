"""Makes and closes a store in each fold; the memory of the server stays."""

import time

import mxnet as mx
from server_memory import server_bytes

from bytescheduler.mxnet import ScheduledKVS

FOLDS, ELEMENTS = 6, 1 << 20
SETTLE_S = 0.2  # until the server knows what is given back

place = ScheduledKVS(mx.kv.create("dist_sync"))  # a process without a store leaves the job
grad, out = mx.nd.ones((ELEMENTS,)), mx.nd.zeros((ELEMENTS,))
sizes = []
for _ in range(FOLDS):
    store = ScheduledKVS(mx.kv.create("dist_sync"))
    store.init("weight", out)
    for _ in range(2):
        store.pushpull("weight", grad, out=out)
        out.wait_to_read()
    assert out[0].asscalar() == 2
    store.close()
    time.sleep(SETTLE_S)
    sizes.append(server_bytes())
print("folds", *(size >> 10 for size in sizes))
# Without giving back, each store has a sum or two there.
print("folds end as they began:", max(sizes[2:]) < max(sizes[:2]) + 1.5 * 4 * ELEMENTS)
place.close()

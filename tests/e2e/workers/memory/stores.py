"""Makes and closes a store in each fold; the memory of the server stays."""

import mxnet as mx
from server_memory import falls_below, server_bytes

from bytescheduler.mxnet import ScheduledKVS

FOLDS, ELEMENTS = 6, 1 << 20

place = ScheduledKVS(mx.kv.create("dist_sync"))  # a process without a store leaves the job
grad, out = mx.nd.ones((ELEMENTS,)), mx.nd.zeros((ELEMENTS,))
mx.nd.waitall()
first = server_bytes()
for _ in range(FOLDS):
    store = ScheduledKVS(mx.kv.create("dist_sync"))
    store.init("weight", out)
    for _ in range(2):
        store.pushpull("weight", grad, out=out)
        out.wait_to_read()
    assert out[0].asscalar() == 2
    store.close()
# Without giving back, each store has a sum or two there.
print("folds end as they began:", falls_below(first + 2.5 * 4 * ELEMENTS), flush=True)
place.barrier()  # a worker that leaves gives all back
place.close()

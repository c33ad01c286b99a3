"""Two networks, each with its own dist store of MXNet, both wrapped; trained in turns."""

import sys

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

inner = [mx.kv.create(kind) for kind in sys.argv[1].split(",")]
stores = [ScheduledKVS(store) for store in inner]
for n, store in enumerate(stores):
    if "async" in store.type:
        store.set_optimizer(mx.optimizer.create("test"))
    store.init(0, mx.nd.ones(5) * n)
outs = [mx.nd.zeros(5) for _ in stores]
for _ in range(3):
    for n, store in enumerate(stores):
        store.push(0, mx.nd.ones(5) * (n + 1))
        store.pull(0, outs[n])
for store in stores:
    store.barrier()
for n, store in enumerate(stores):
    store.pull(0, outs[n])
types = " ".join(store.type for store in stores)
print("stores", types, *(out.asnumpy()[0] for out in outs), flush=True)

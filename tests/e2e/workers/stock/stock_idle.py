"""A stock worker that has nothing to do."""

import time

import mxnet as mx

KV = mx.kv.create("dist_sync")
print("idle", flush=True)
time.sleep(100)

"""README's line: ``readme_line.py [looks|unwrapped|plain]``.

"looks" looks at the store before it is wrapped, "unwrapped" does not wrap it, and "plain" does not
import bytescheduler either.
"""

import sys

import mxnet as mx

how = sys.argv[1]
if how != "plain":
    from bytescheduler.mxnet import ScheduledKVS

kvs = mx.kv.create("dist_sync")
before = (kvs.rank, kvs.num_workers) if how == "looks" else None
if how in ("", "looks"):
    kvs = ScheduledKVS(kvs)
assert before in (None, (kvs.rank, kvs.num_workers)), before
kvs.init("a", mx.nd.zeros(3))
kvs.push("a", mx.nd.ones(3) * (kvs.rank + 1))
total = mx.nd.zeros(3)
kvs.pull("a", total)
assert total.asnumpy().tolist() == [3, 3, 3], total
print(f"summed at rank {kvs.rank} of {kvs.num_workers}, as before", flush=True)

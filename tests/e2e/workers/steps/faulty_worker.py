"""A worker that checks every sum of many small tensors while the test harms the job.

``faulty_worker.py STORE STEPS PAUSE`` prints ``step N`` before each step and ``all sums right`` at
the end; PAUSE is the seconds between steps, and rank 1 takes ten times as long if it ends in ``!``.
"""

import sys
import time

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

SIZES = (1, 256, 5000, 70000)


def main() -> None:
    kind, steps, pause = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    kvs = ScheduledKVS(None if kind == "native" else mx.kv.create(kind))
    rank, workers = kvs.rank, kvs.num_workers
    pause_s = float(pause.rstrip("!")) * (10 if pause.endswith("!") and rank == 1 else 1)
    keys = range(len(SIZES))
    kvs.init(list(keys), [mx.nd.zeros((size,)) for size in SIZES])
    for step in range(1, steps + 1):
        print(f"step {step} of rank {rank}", flush=True)
        base = step % 10000 * 100  # its sums are exact in float32 after any number of steps
        outs = [mx.nd.zeros((size,)) for size in SIZES]
        for key in keys:
            kvs.pushpull(
                key, mx.nd.full((SIZES[key],), base + key + rank), outs[key], priority=-key
            )
        for key in keys:
            want = sum(base + key + each for each in range(workers))
            got = outs[key].asnumpy()
            assert (got == want).all(), f"step {step}, key {key}: {got}, want {want}"
        if step < steps:
            time.sleep(pause_s)  # the computing of a step
    kvs.close()
    print("all sums right", flush=True)


if __name__ == "__main__":
    main()

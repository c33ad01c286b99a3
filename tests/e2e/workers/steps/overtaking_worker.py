"""A worker that makes an urgent tensor ready after a big one and reports when each came."""

import json
import sys
import threading
import time

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

BIG_BYTES = 24 << 20
URGENT_BYTES = 64 << 10


def main() -> None:
    """Print {"urgent": seconds, "big": seconds} since the big tensor was given away."""
    kvs = ScheduledKVS(mx.kv.create("dist_sync"))
    big, urgent = (mx.nd.ones((size // 4,)) for size in (BIG_BYTES, URGENT_BYTES))
    kvs.broadcast(0, big, out=big)
    kvs.broadcast(1, urgent, out=urgent)
    mx.nd.waitall()
    kvs.barrier()

    begin = time.perf_counter()
    arrived = {}
    kvs.pushpull(0, big, out=big, priority=-10)

    def wait(name: str, array: mx.nd.NDArray) -> None:
        array.wait_to_read()
        arrived[name] = time.perf_counter() - begin

    first = threading.Thread(target=wait, args=("big", big))
    first.start()
    # Ready when about a tenth of the big one can have left: 24 MiB at 200 Mbit/s take seconds.
    time.sleep(0.2)
    kvs.pushpull(1, urgent, out=urgent, priority=0)
    wait("urgent", urgent)
    first.join()
    assert (big.asnumpy() == kvs.num_workers).all(), "a sum is wrong"
    assert (urgent.asnumpy() == kvs.num_workers).all(), "a sum is wrong"
    print("ARRIVED " + json.dumps(arrived), flush=True)


if __name__ == "__main__":
    sys.exit(main())

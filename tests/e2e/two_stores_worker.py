"""Two stock stores in one process, each a worker of the job, on a thread of its own."""

import threading

import mxnet as mx
import numpy as np

SHAPE = (7,)
STEPS = 5


def work(index: int, ready: threading.Barrier) -> None:
    kv = mx.kv.create("dist_sync")
    assert kv.num_workers == 2
    kv.init(3, mx.nd.zeros(SHAPE))
    for step in range(STEPS):
        kv.push(3, mx.nd.full(SHAPE, step + 10.0 * index))
        out = mx.nd.zeros(SHAPE)
        kv.pull(3, out=out)
        np.testing.assert_array_equal(out.asnumpy(), np.full(SHAPE, 2 * step + 10.0))
    if ready.wait(60) == 0:
        print("both agree", flush=True)
    # At the end each waits for the other, so not one after the other.
    kv.__del__()
    kv.handle = None


def main() -> None:
    ready = threading.Barrier(2)
    failed = []

    def guarded(index: int) -> None:
        try:
            work(index, ready)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


if __name__ == "__main__":
    main()

"""Two stock stores in one process, each a worker of the job, on a thread of its own."""

import os
import threading
import traceback

import mxnet as mx
import numpy as np

STEPS = 5
SHAPE = (40, 30)  # is cut, if the bound is 1000
ROWS = np.arange(40)  # one store pushes half of them: a stock server mixes up what nobody pushes
KINDS = {3: "dense", 4: "half", 5: "rows", 6: "two bits"}
THRESHOLD = 0.5


def given(kind: str, index: int, step: int) -> mx.nd.NDArray:
    """Return what a store pushes: in two bits, what says once a threshold and once none."""
    if kind == "rows":
        rows = ROWS[: len(ROWS) // (2 - index)]
        values = np.full((len(rows), SHAPE[1]), step + 10.0 * index)
        return mx.nd.sparse.row_sparse_array((values, rows), SHAPE, dtype="float32")
    if kind == "two bits":
        return mx.nd.full(SHAPE, THRESHOLD / 2 * (index + 1))
    return mx.nd.full(SHAPE, step + 10.0 * index, dtype="float16" if kind == "half" else "float32")


def wanted(kind: str, step: int) -> np.ndarray:
    """Return the sum of both."""
    if kind == "two bits":
        return np.full(SHAPE, THRESHOLD * (1 + step % 2), np.float32)
    total = np.full(SHAPE, 2 * step + 10.0, np.float16 if kind == "half" else np.float32)
    if kind == "rows":
        total[len(ROWS) // 2 :] -= step
    return total


def pull(kv: mx.kvstore.KVStore, kind: str, key: int) -> np.ndarray:
    out = mx.nd.zeros(SHAPE, dtype="float16" if kind == "half" else "float32")
    if kind == "rows":
        out = out.tostype("row_sparse")
        kv.row_sparse_pull(key, out=out, row_ids=mx.nd.arange(SHAPE[0]))
    else:
        kv.pull(key, out=out)
    return out.asnumpy()


def work(index: int, ready: threading.Barrier) -> None:
    kv = mx.kv.create("dist_sync")
    assert kv.num_workers == 2
    for compressed in (False, True):  # which cannot be taken back
        if compressed:
            kv.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
            kv._barrier()
        kinds = {key: kind for key, kind in KINDS.items() if (kind == "two bits") == compressed}
        for key, kind in kinds.items():
            zeros = mx.nd.zeros(SHAPE, dtype="float16" if kind == "half" else "float32")
            every_row = mx.nd.sparse.row_sparse_array((zeros, np.arange(SHAPE[0])), SHAPE)
            kv.init(key, every_row if kind == "rows" else zeros)
        for step in range(STEPS):
            for key, kind in kinds.items():
                kv.push(key, given(kind, index, step))
            for key, kind in kinds.items():
                np.testing.assert_array_equal(pull(kv, kind, key), wanted(kind, step), kind)
            kv._barrier()
    if ready.wait(60) == 0:
        print("both agree", flush=True)
    # At the end each waits for the other, so not one after the other.
    kv.__del__()
    kv.handle = None


def main() -> None:
    ready = threading.Barrier(2)

    def guarded(index: int) -> None:
        try:
            work(index, ready)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the other would wait for ever

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

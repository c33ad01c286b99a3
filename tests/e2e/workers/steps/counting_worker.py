"""A worker of dist_async that counts its pushes where everybody sees them.

``counting_worker.py LIFE FOLDER``: each push adds one to column LIFE of the weights, every row of
which is a partition of its own.  So each pull shows how often each push of everybody, also of those
who are dead, has been counted in each partition.  Once there is a file ``stop`` in FOLDER it waits
for the others, says all columns and ends.
"""

import json
import pathlib
import sys
import time

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS

LIVES = 1024  # floats of a partition of 4 KiB
PARTITIONS = 5
PAUSE_S = 0.02  # the computing of a step


def pulled(kv: ScheduledKVS) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    out = mx.nd.zeros((PARTITIONS, LIVES))
    kv.pull("w", out=out)
    values: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = out.asnumpy()
    return values


def main(life: int, folder: pathlib.Path) -> None:
    kv = ScheduledKVS(mx.kv.create("dist_async"))
    # Before the key is there, so that it is cut.
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, wd=0.0, rescale_grad=1.0))
    kv.init("w", mx.nd.zeros((PARTITIONS, LIVES)))
    gradient = mx.nd.zeros((PARTITIONS, LIVES))
    gradient[:, life] = 1
    before, pushed = pulled(kv), 0
    assert not before[:, life].any(), before[:, life]
    print("begins", flush=True)
    while not (folder / "stop").exists():
        pushed += 1
        print(f"pushes {pushed}", flush=True)
        kv.push("w", gradient)
        now = pulled(kv)
        assert (now[:, life] == pushed).all(), f"{now[:, life]} instead of {pushed}"
        assert (now >= before).all(), f"less than before: columns {np.argwhere(now < before)[:, 1]}"
        before = now
        print(f"counted {pushed}", flush=True)
        time.sleep(PAUSE_S)
    (folder / f"done-{life}").touch()
    while len(list(folder.glob("done-*"))) < kv.num_workers:
        time.sleep(PAUSE_S)  # a barrier would be passed, or not, by those who came later
    print("in the end " + json.dumps(pulled(kv).T.astype(int).tolist()), flush=True)
    kv.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]))

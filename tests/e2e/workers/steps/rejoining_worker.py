"""A worker that is killed and started again: ``rejoining_worker.py STORE RANK LIVES STEPS FOLDER``.

The worker of RANK pushes LOST times and then waits to be killed, in all of its LIVES but the last.
STORE is "wrapped", or a name of MXNet's own stores, which stay as they are.  Files in FOLDER count
the lives.
"""

import pathlib
import sys
import time

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

LOST = 5
SHAPE = (5000,)
PATIENCE_S = 100.0


def open_store(kind: str) -> "mx.kvstore.KVStore":
    if kind == "wrapped":
        return ScheduledKVS(mx.kv.create("dist_async"))
    return mx.kv.create(kind)


def value_of(kv: "mx.kvstore.KVStore") -> float:
    out = mx.nd.zeros(SHAPE)
    kv.pull("w", out=out)
    values = set(out.asnumpy().tolist())
    assert len(values) == 1, values
    return float(values.pop())


def push(kv: "mx.kvstore.KVStore", steps: int, by: float) -> None:
    for _ in range(steps):
        kv.push("w", mx.nd.full(SHAPE, by))
        value_of(kv)


def until(kv: "mx.kvstore.KVStore", want: float) -> None:
    """Wait for what the others push; a barrier would not tell who has to come again."""
    end = time.monotonic() + PATIENCE_S
    while value_of(kv) != want:
        assert time.monotonic() < end, f"{value_of(kv)} instead of {want}"
        time.sleep(0.05)  # nobody tells


def main(kind: str, lost_rank: int, lives: int, steps: int, folder: pathlib.Path) -> None:
    kv = open_store(kind)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, wd=0.0, rescale_grad=1.0))
    kv.init("w", mx.nd.full(SHAPE, 7.0))
    if kv.rank == lost_rank:
        life = len(list(folder.glob("life-*")))
        (folder / f"life-{life}").touch()
        if life + 1 < lives:
            push(kv, LOST, 100)
            print("to be killed", flush=True)
            time.sleep(PATIENCE_S)
    push(kv, steps, 1)
    print("pushed all", flush=True)
    until(kv, 7 + kv.num_workers * steps + (lives - 1) * LOST * 100)
    print("well done", flush=True)
    if isinstance(kv, ScheduledKVS):
        kv.close()


if __name__ == "__main__":
    main(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), pathlib.Path(sys.argv[5])
    )

"""A stock worker of a synchronous job that is killed and started again.

``rejoining_in_step.py WHEN RANK FOLDER``: where WHEN is "between", the worker of RANK is killed
after every LOST steps, in all of its LIVES but the last.  Else it is killed once, when it has
pushed one of two keys, and its successor either pushes what is owed ("owed"), or the whole step
again ("again"), which is one push too many.  Files in FOLDER count the lives, as a checkpoint
would.
"""

import pathlib
import sys
import time
from typing import List

import mxnet as mx

LIVES, LOST, STEPS = 3, 4, 12
SHAPE = (5000,)
KEYS = ["a", "b"]
PATIENCE_S = 100.0


def value_of(kv: "mx.kvstore.KVStore", key: str) -> float:
    out = mx.nd.zeros(SHAPE)
    kv.pull(key, out=out)
    values = set(out.asnumpy().tolist())
    assert len(values) == 1, values
    return float(values.pop())


def push(kv: "mx.kvstore.KVStore", keys: "List[str]") -> None:
    for key in keys:
        kv.push(key, mx.nd.full(SHAPE, 1.0))


def wait_to_be_killed() -> None:
    print("to be killed", flush=True)
    time.sleep(PATIENCE_S)


def train(kv: "mx.kvstore.KVStore", first: int, last: int, *, owed: bool = False) -> None:
    """Make the steps, and look whether all values are those of the step."""
    for step in range(first, last + 1):
        push(kv, ["b"] if owed and step == first else KEYS)
        for key in KEYS:
            assert value_of(kv, key) == 7 + kv.num_workers * step, (key, step)


def main(when: str, lost_rank: int, folder: pathlib.Path) -> None:
    kv = mx.kv.create("dist_sync")
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, wd=0.0, rescale_grad=1.0))
    kv.init(KEYS, [mx.nd.full(SHAPE, 7.0)] * 2)
    if kv.rank != lost_rank:
        train(kv, 1, STEPS)
    else:
        life = len(list(folder.glob("life-*")))
        (folder / f"life-{life}").touch()
        done = LOST * life
        assert value_of(kv, "b") == 7 + kv.num_workers * done
        if when == "between" and life + 1 < LIVES:
            train(kv, done + 1, done + LOST)
            wait_to_be_killed()
        elif when != "between" and life == 0:
            train(kv, 1, LOST)
            push(kv, ["a"])
            value_of(kv, "a")  # it is in the round
            wait_to_be_killed()
        elif when == "again":
            for _ in range(done, STEPS):
                push(kv, KEYS)
                print([value_of(kv, key) for key in KEYS], flush=True)
        else:
            train(kv, done + 1, STEPS, owed=when == "owed")
    print("well done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))

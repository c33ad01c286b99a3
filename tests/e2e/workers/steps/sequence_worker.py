"""A worker that runs sequences of store calls from files: ``sequence_worker.py KIND``.

Sequence n lies in ``KIND-n.json``; the results go to ``KIND-n-RANK.npz``.  An empty sequence ends
the worker.  KIND is "stock" or "ours", of a ``dist_sync`` store, "stock-async", "ours-async", or
"local", a stock store of one process.
"""

import json
import os
import pathlib
import sys
import time
from typing import Any, Dict, List

import mxnet as mx
import numpy as np

from bytescheduler.mxnet import ScheduledKVS  # else MXNet takes its name for a local store's

# (1500,) is more than the smallest partition; the last is that of row_sparse keys only.
SHAPES = [(1,), (3, 2), (2, 1, 3), (9000,), (9, 200)]
Call = Dict[str, Any]


class Runner:
    """Runs calls on a store; keys are those of the sequence, made unique for the job."""

    def __init__(self, kvs: mx.kvstore.KVStore, number: int) -> None:
        self._kvs = kvs
        self._number = number
        self._specs: Dict[int, Call] = {}  # shape and dtype of each key of the sequence

    def run(self, calls: "List[Call]") -> "List[np.ndarray[Any, Any]]":
        results = []
        for call in calls:
            try:
                arrays = self._do(call)
            except (AssertionError, TypeError, ValueError) as error:
                arrays = [np.array(type(error).__name__)]
            # A stock store mixes up requests of one key that nobody waits for.
            mx.nd.waitall()
            results += [a.asnumpy() if isinstance(a, mx.nd.NDArray) else a for a in arrays]
        return results

    def _do(self, call: Call) -> List[Any]:
        return list(getattr(self, "do_" + call["call"])(**call.get("with", {})))

    def do_together(self, calls: "List[Call]") -> List[Any]:
        """Wait for none of them; the values are looked at when all are over."""
        return [array for call in calls for array in self._do(call)]

    def _key(self, index: int, names: bool) -> "int | str":
        key = 10 * self._number + index
        return f"key{key}" if names else key

    def _keys(self, indices: "List[int]") -> "List[int | str]":
        return [self._key(index, self._specs[index]["names"]) for index in indices]

    def _values(
        self, indices: "List[int]", seed: int, devices: int, *, all_rows: bool = False
    ) -> "List[List[mx.nd.NDArray]]":
        random = np.random.RandomState(seed * 10 + self._kvs.rank)

        def numbers(spec: Call) -> "np.ndarray[Any, Any]":
            shape = SHAPES[spec["shape"]]
            if spec["dtype"] == "float32":
                return random.uniform(-1, 1, shape)
            # Whether a stock server keeps these in float32 is a variable that it never sets, so
            # they are numbers whose sums are exact in each of the dtypes.
            return random.randint(-8, 9, shape) / 4.0

        def array(spec: Call, device: int) -> mx.nd.NDArray:
            options = {"ctx": mx.cpu(device), "dtype": spec["dtype"]}
            if not spec["rows"]:
                return mx.nd.array(numbers(spec), **options)
            shape = SHAPES[spec["shape"]]
            # A stock server puts a sum that lacks rows in the wrong places.
            full = all_rows or (self._kvs.rank == 0 and device == 0)
            count = shape[0] if full else random.randint(1, shape[0] + 1)
            rows = np.sort(random.choice(shape[0], count, replace=False))
            return mx.nd.sparse.row_sparse_array((numbers(spec)[rows], rows), shape, **options)

        return [
            [array(self._specs[index], device) for device in range(devices)] for index in indices
        ]

    def _outs(self, indices: "List[int]", count: int) -> "List[List[mx.nd.NDArray]]":
        specs = [self._specs[index] for index in indices]
        return [  # another dtype than the key's ends a stock worker
            [mx.nd.zeros(SHAPES[spec["shape"]], dtype=spec["dtype"]) for _ in range(count)]
            for spec in specs
        ]

    def do_init(self, key: int, seed: int, how: str, **spec: object) -> "List[mx.nd.NDArray]":
        self._specs[key] = spec
        value = self._values([key], seed, 1, all_rows=True)[0][0]
        if how == "init" or spec["rows"]:
            self._kvs.init(self._keys([key])[0], value)
            return []
        out = mx.nd.zeros(value.shape, dtype=value.dtype)
        self._kvs.broadcast(self._keys([key]), [value], out=[out])
        return [out]

    def do_push(self, keys: "List[int]", seed: int, devices: int, priority: int) -> List[Any]:
        self._kvs.push(self._keys(keys), self._values(keys, seed, devices), priority)
        return []

    def do_pull(self, keys: "List[int]", count: int) -> "List[mx.nd.NDArray]":
        outs = self._outs(keys, count)
        self._kvs.pull(self._keys(keys), out=outs)
        return [out for each in outs for out in each]

    def do_rows(self, key: int, row_ids: "List[int]") -> "List[mx.nd.NDArray]":
        spec = self._specs[key]
        out = mx.nd.sparse.zeros("row_sparse", SHAPES[spec["shape"]], dtype=spec["dtype"])
        self._kvs.row_sparse_pull(self._keys([key])[0], out=out, row_ids=mx.nd.array(row_ids))
        return [out]

    def do_pushpull(
        self,
        keys: "List[int]",
        seed: int,
        devices: int,
        in_place: bool,
        priority: int,
        compressed: bool = False,
    ) -> "List[mx.nd.NDArray]":
        values = outs = self._values(keys, seed, devices)
        if not in_place:
            outs = [[mx.nd.zeros_like(a) for a in arrays] for arrays in values]
        if compressed and type(self._kvs) is mx.kvstore.KVStore:  # which refuses it
            self._kvs.push(self._keys(keys), values, priority)
            mx.nd.waitall()
            self._kvs.pull(self._keys(keys), out=outs)
            return [array for arrays in outs for array in arrays]
        out = None if in_place else outs
        self._kvs.pushpull(self._keys(keys), values, out=out, priority=priority)
        return [array for arrays in outs for array in arrays]

    def do_optimizer(self, name: str, **options: float) -> List[Any]:
        self._kvs.set_optimizer(getattr(mx.optimizer, name)(**options))
        self._kvs._barrier()  # stock servers take the optimizer of each worker, as it comes
        return []

    def do_states(self, dump: bool, key: int, seed: int) -> "List[mx.nd.NDArray]":
        """Update, go back to the states of before, and update again from there."""
        file = f"{os.getpid()}.states"
        self._kvs.save_optimizer_states(file, dump_optimizer=dump)
        self.do_push([key], seed, 1, 0)
        before = self.do_pull([key], 1)
        self._kvs.load_optimizer_states(file)
        self.do_push([key], seed + 1, 1, 0)
        return before + self.do_pull([key], 1)

    def do_compress(self, threshold: float) -> List[Any]:
        self._kvs.set_gradient_compression({"type": "2bit", "threshold": threshold})
        self._kvs._barrier()  # stock servers hear of it from rank 0 only
        return []

    def do_barrier(self) -> List[Any]:
        self._kvs._barrier()
        return [np.array([self._kvs.num_workers, self._kvs.is_capable("Optimizer")])]

    def do_wrong(self, which: int) -> List[Any]:
        array, kvs = mx.nd.zeros((2,)), self._kvs
        wrong = [
            lambda: kvs.push([3], [array, array]),
            lambda: kvs.push(2.5, array),
            lambda: kvs.push([3, "x"], [array, array]),
            lambda: kvs.push(3, [array, 1.0]),
            lambda: kvs.push(3, 1.0),
            lambda: kvs.pull(3),
            lambda: kvs.row_sparse_pull(3, out=array),
            lambda: kvs.is_capable("flight"),
        ]
        wrong[which % len(wrong)]()
        return [np.array("nothing was raised")]


def open_store(kind: str) -> mx.kvstore.KVStore:
    if kind == "ours-async":
        return ScheduledKVS(mx.kv.create("dist_async"))
    names = {"ours": "bytescheduler", "stock": "dist_sync", "stock-async": "dist_async"}
    return mx.kv.create(names.get(kind, kind))


def main() -> None:
    kind = sys.argv[1]
    kvs = open_store(kind)
    number = 0
    while True:
        file = pathlib.Path(f"{kind}-{number}.json")
        while not file.exists():
            time.sleep(0.005)  # a file tells nobody that it is there
        calls = json.loads(file.read_text())
        if not calls:
            break
        results = Runner(kvs, number).run(calls)
        target = f"{kind}-{number}-{kvs.rank}.npz"
        with open("part-" + target, "wb") as part:
            np.savez(part, *results)
        os.replace("part-" + target, target)
        number += 1


if __name__ == "__main__":
    main()

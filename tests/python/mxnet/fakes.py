"""A fake plug-in and a fake store, under MXNet's real engine, and a training for several tests."""

import ctypes
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from fake_engine import FakeOperations
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.kvstore import KVStoreBase

from bytescheduler._native import Coding, MXNetRounds


def full(value: float, shape: "Tuple[int, ...]" = (2, 3)) -> mx.nd.NDArray:
    return mx.nd.full(shape, value)


def train_on_two_devices(kvs: KVStoreBase, steps: int, **options: object) -> np.ndarray:
    """Return the weight of a layer that Gluon trained over `kvs` with Adam."""
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    rate = {"learning_rate": 0.1}
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", rate, kvstore=kvs, **options)
    for step in range(steps):
        with mx.autograd.record():
            losses = [net(full(step + d).as_in_context(mx.cpu(d))).sum() for d in range(2)]
        mx.autograd.backward(losses)
        trainer.step(2)
    return net.weight.data(mx.cpu(1)).asnumpy()


def two_bits(threshold: float) -> Coding:
    return Coding("2bit", {"threshold": str(threshold)})


def own_bytes() -> int:
    """Return the memory that this process shares with nobody."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line) << 10


class FakePlugin(FakeOperations):
    """The sum is `factor` times what is sent, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1
        self.calls: List[Tuple[int, str, int]] = []
        self.codings: List[Optional[Coding]] = []
        self.rates: List[Optional[Tuple[float, float, float]]] = []
        self.sent: List[float] = []  # the first element of each

    def push_pull(
        self,
        rounds: MXNetRounds,
        priority: int,
        *,
        coding: Optional[Coding] = None,
        rates: Optional[Tuple[float, float, float]] = None,
    ) -> None:
        self.calls.append((rounds.key, rounds.text, priority))
        self.codings.append(coding)
        self.rates.append(rates)
        pointers = []
        for handle in (rounds.send, rounds.recv):
            check_call(_LIB.MXNDArrayWaitToWrite(NDArrayHandle(handle)))
            pointer = ctypes.c_void_p()
            check_call(_LIB.MXNDArrayGetData(NDArrayHandle(handle), ctypes.byref(pointer)))
            pointers.append(pointer)
        ctypes.memset(pointers[1], 0, rounds.size_bytes)
        floats = [ctypes.cast(p, ctypes.POINTER(ctypes.c_float)) for p in pointers]
        self.sent += floats[0][: min(1, rounds.size_bytes // 4)]
        for index in range(rounds.size_bytes // 4):
            floats[1][index] = floats[0][index] * self.factor

    def exchange(self, *_: object) -> bool:
        return False  # everything goes the long way


class TwoBitStore:
    """A stock store of one worker: rank 0's, or another's, whose first values are `theirs`."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.type = "dist_sync"
        self.handle = mx.base.KVStoreHandle()
        self.theirs: Dict[int, np.ndarray] = {}
        self.values: Dict[int, np.ndarray] = {}
        self.residuals: Dict[int, np.ndarray] = {}
        self.arrays: Dict[int, Any] = {}
        self.calls: List[str] = []
        self.params: Dict[str, Any] = {}
        self.updater: object = None

    def set_gradient_compression(self, params: "Dict[str, Any]") -> None:
        self.calls.append("compress")
        self.params = params

    def init(self, keys: "List[int]", values: "List[Any]") -> None:
        self.calls.append("init")
        assert all(value.dtype == np.float32 for value in values)
        for key, value in zip(keys, values):
            assert key not in self.values
            mine = value.asnumpy()
            self.values[key] = mine if self.rank == 0 else self.theirs.get(key, mine)
            self.residuals[key] = np.zeros_like(mine)

    def push(self, key: int, value: Any, priority: int) -> None:  # noqa: ANN401 - MXNet has no types
        self.calls.append(f"push {key} {priority}")
        self.arrays[key] = value
        threshold = np.float32(self.params["threshold"])
        residual = self.residuals[key] + value.asnumpy()
        sent = threshold * (residual >= threshold) - threshold * (residual <= -threshold)
        self.residuals[key] = residual - sent
        self.values[key] = sent.astype(np.float32)

    def pull(self, keys: Any, out: Any, priority: int = 0) -> None:  # noqa: ANN401
        keys, outs = (keys, out) if isinstance(keys, list) else ([keys], [out])
        for key, each in zip(keys, outs):
            assert self.arrays.get(key, each) is each  # one array orders pushes and pulls
            each[:] = mx.nd.array(self.values[key])

    def _barrier(self) -> None:
        self.calls.append("barrier")

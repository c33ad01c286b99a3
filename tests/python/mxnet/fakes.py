"""Fakes of the engine's two objects, under MXNet's real one, and a training for several tests."""

import ctypes
import pathlib
from typing import Any, Dict, List, Optional, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.kvstore import KVStoreBase

from bytescheduler._native import MXNetRounds
from bytescheduler.errors import Error, PeerLost, UsageError


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


def own_bytes() -> int:
    """Return the memory that this process shares with nobody."""
    status = pathlib.Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line) << 10


class FakeWorker:
    """A job of one worker, or whatever `rank` and `num_workers` say."""

    def __init__(self) -> None:
        self.rank = 0
        self.num_workers = 1
        self.num_servers = 1
        self.declared: List[Tuple[int, int, int]] = []
        self.modes: List[bool] = []  # of each call, whether its keys are asynchronous
        self.failure: Optional[Error] = None
        self.closed = False
        self.barriers = 0
        self.retuned: List[Tuple[int, int]] = []
        self.names: Dict[int, str] = {}

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        if self.rank != 0:
            raise UsageError("worker 0 decides about partitions and credit", 8)
        self.retuned.append((partition_bytes, credit_bytes))

    def name_key(self, key: int, name: str) -> None:
        self.names[key] = name

    def broadcast(
        self,
        items: "List[Tuple[int, int, int, int]]",
        *,
        owner: object = None,
        asynchronous: bool = False,
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.declared += [(key, dtype, size) for key, dtype, _, size in items]
        self.modes.append(asynchronous)

    def barrier(self) -> None:
        self.barriers += 1

    def fail(self, why: str) -> None:
        self.failure = PeerLost(f"worker 0 gave up: {why}", 4)

    def measure(self, *, timeout_ms: int = 1000) -> "List[object]":
        return []

    def status(self) -> Optional[Error]:
        return self.failure

    def close(self) -> None:
        self.closed = True


class FakePlugin:
    """The sum is `factor` times what is sent, at once."""

    def __init__(self) -> None:
        self.factor = 1
        self.calls: List[Tuple[int, str, int]] = []
        self.thresholds: List[float] = []
        self.unfinished = 0
        self.drained: List[Optional[float]] = []
        self.closed = False

    def push_pull(self, rounds: MXNetRounds, priority: int, *, threshold: float = 0) -> None:
        self.calls.append((rounds.key, rounds.text, priority))
        self.thresholds.append(threshold)
        pointers = []
        for handle in (rounds.send, rounds.recv):
            check_call(_LIB.MXNDArrayWaitToWrite(NDArrayHandle(handle)))
            pointer = ctypes.c_void_p()
            check_call(_LIB.MXNDArrayGetData(NDArrayHandle(handle), ctypes.byref(pointer)))
            pointers.append(pointer)
        ctypes.memset(pointers[1], 0, rounds.size_bytes)
        floats = [ctypes.cast(p, ctypes.POINTER(ctypes.c_float)) for p in pointers]
        for index in range(rounds.size_bytes // 4):
            floats[1][index] = floats[0][index] * self.factor

    def exchange(self, *_: object) -> bool:
        return False  # everything goes the long way

    def pending(self) -> int:
        return self.unfinished

    def drain(self, timeout: Optional[float] = None) -> bool:
        self.drained.append(timeout)
        return self.unfinished == 0 or timeout is None

    def close(self) -> None:
        self.closed = True


class TwoBitStore:
    """A stock store of one worker: rank 0's, or another's, whose first values are `theirs`."""

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.type = "dist_sync"
        self.handle = None
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

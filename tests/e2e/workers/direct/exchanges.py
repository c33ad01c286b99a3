"""A worker that exchanges values with random groups of its job; arguments: SEED CALLS.

All ranks draw the same calls, and each compares what it gets with numpy.  In the end ranks differ,
and wait too long for each other.
"""

import functools
import random
import sys
from typing import Dict, List, NamedTuple

import numpy as np

from bytescheduler import Closed, ConfigError, Timeout
from bytescheduler._core import Completions, Pending, Worker
from bytescheduler._session.direct import open_worker

DTYPES = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.uint8, 4: np.int32, 5: np.int8}
DTYPES[6] = np.int64
OPS = {0: np.add, 1: np.minimum, 2: np.maximum, 3: np.multiply}
AHEAD = 8  # calls under way


class Call(NamedTuple):
    key: int
    givers: List[int]
    takers: List[int]
    dtype: int
    op: int
    count: int
    home: int
    priority: int


def draw(chance: random.Random, key: int, size: int) -> Call:
    def ranks() -> List[int]:
        return sorted(chance.sample(range(size), chance.randint(1, size)))

    return Call(
        *(key, ranks(), ranks(), chance.choice(list(DTYPES)), chance.choice(list(OPS))),
        *(chance.choice([0, 1, 7, 1000, 40_000, 700_000]), chance.randint(-1, size - 1)),
        chance.randint(-2, 2),
    )


def given(call: Call, rank: int) -> np.ndarray:
    # Small whole numbers: every order of a sum or product is exact.
    values = np.random.RandomState(call.key * 10 + rank).randint(-2, 3, call.count)
    return values.astype(DTYPES[call.dtype])


def start(
    worker: Worker, call: Call, sent: np.ndarray, received: np.ndarray, completions: Completions
) -> Pending:
    return worker.start_exchange(
        *(call.key, call.givers, call.takers),
        size=received.nbytes,
        owner=(sent, received),
        dtype=call.dtype,
        op=call.op,
        send=sent.ctypes.data if worker.rank in call.givers else 0,
        receive=received.ctypes.data if worker.rank in call.takers else 0,
        home=call.home,
        label=f"call {call.key}",
        priority=call.priority,
        completions=completions,
        token=call.key,
    )


class UnderWay(NamedTuple):
    call: Call
    pending: Pending
    received: np.ndarray


def check(worker: Worker, one: UnderWay) -> None:
    assert one.pending.over()
    assert one.pending.pushed()
    if worker.rank not in one.call.takers:
        return
    contributions = [given(one.call, giver) for giver in one.call.givers]
    want = functools.reduce(OPS[one.call.op], contributions)
    np.testing.assert_array_equal(one.received, want, str(one.call))


def exchange(worker: Worker, seed: int, calls: int) -> None:
    chance = random.Random(seed)
    chance_of_own = random.Random(worker.rank)
    completions = Completions()
    under_way: Dict[int, UnderWay] = {}
    for key in range(1, calls + 1):
        call = draw(chance, key, worker.num_workers)
        if worker.rank in call.givers + call.takers:
            sent = given(call, worker.rank)
            # In place, for every other call.
            received = sent if key % 2 else np.zeros_like(sent)
            pending = start(worker, call, sent, received, completions)
            under_way[key] = UnderWay(call, pending, received)
            if key % 3 == 0:
                worker.reprioritise_exchange(chance_of_own.randint(1, key), key)
        while len(under_way) > (AHEAD if key < calls else 0):
            for token in completions.wait(10_000):
                check(worker, under_way.pop(token))


def refused(worker: Worker, key: int, label: str, timeout_s: float = 0) -> str:
    """Return the error of an exchange among all."""
    everyone = list(range(worker.num_workers))
    value = np.ones(3, np.float32)
    pending = worker.start_exchange(
        *(key, everyone, everyone),
        size=value.nbytes,
        owner=value,
        send=value.ctypes.data,
        receive=value.ctypes.data,
        label=label,
        timeout_s=timeout_s,
    )
    if label == "quits":
        worker.quit_exchange(key, "abort")
    try:
        pending.wait()
    except (ConfigError, Timeout, Closed) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def main(seed: int, calls: int) -> None:
    worker = open_worker()
    exchange(worker, seed, calls)
    print("exchanged", flush=True)
    label = "all_gather #3" if worker.rank == 1 else "all_reduce #3"
    print("differs:", refused(worker, 10**9, label), flush=True)
    worker.barrier()
    if worker.rank != 2:
        print("late:", refused(worker, 10**9 + 1, "call", timeout_s=5), flush=True)
    worker.barrier()
    if worker.rank == 0:
        print("quits:", refused(worker, 10**9 + 2, "quits"), flush=True)
    assert worker.status() is None
    worker.barrier()
    worker.close()
    print("left", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

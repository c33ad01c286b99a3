"""Random sequences of calls give the same results on a stock store and on ours."""

import itertools
import json
import os
import pathlib
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job import PATIENCE_S, Job

MakeJob = Callable[..., Job]
Call = Dict[str, Any]
ROWS = {1: 3, 4: 9}  # of sequence_worker.py's shapes, those of row_sparse keys and their rows
DTYPES = ["float32", "float16", "float64"]
SEEDS = st.integers(0, 10**6)
PRIORITIES = st.integers(-5, 5)


class Pool:
    """The long-lived workers of one job."""

    def __init__(self, job: Job, kind: str, workers: int = 2) -> None:
        self.workers = workers
        self._kind = kind
        self._job = job
        self._folder: pathlib.Path = job.folder
        self._number = 0
        for _ in range(workers):
            job.start_worker("steps/sequence_worker.py", kind)

    def start(self, calls: "List[Call]") -> None:
        part = self._folder / f"part-{self._kind}.json"
        part.write_text(json.dumps(calls))
        os.replace(part, self._folder / f"{self._kind}-{self._number}.json")

    def results(self) -> "List[List[np.ndarray[Any, Any]]]":
        end = time.monotonic() + PATIENCE_S
        name = f"{self._kind}-{self._number}"
        files = [self._folder / f"{name}-{rank}.npz" for rank in range(self.workers)]
        while not all(file.exists() for file in files):
            assert all(p.running() for p in self._job.processes), self._job.all_output()
            assert time.monotonic() < end, self._job.all_output()
            time.sleep(0.005)  # a file tells nobody that it is there
        self._number += 1
        return [list(np.load(file).values()) for file in files]

    def wait(self) -> None:
        for process in self._job.processes:
            assert process.wait() == 0, self._job.all_output()


def end(pools: "List[Pool]") -> None:
    for pool in pools:
        pool.start([])
    for pool in pools:
        pool.wait()


OPTIMIZERS = ["SGD", "NAG", "Adam", "AdaGrad", "RMSProp", "Ftrl", "Signum"]


@st.composite
def optimizers(draw: "st.DrawFn", names: "List[str]") -> Call:
    name = draw(st.sampled_from(names))
    factors = st.sampled_from([0.0, 0.125, 0.9])
    options = {"learning_rate": draw(factors), "wd": draw(factors), "rescale_grad": 0.5}
    if name in ("SGD", "NAG", "Signum"):
        options["momentum"] = draw(factors)
    return {"call": "optimizer", "with": {"name": name, **options}}


@st.composite
def together(
    draw: "st.DrawFn",
    dense: "List[int]",
    sparse: "Dict[int, int]",
    devices: int,
    compressed: bool,
) -> Call:
    """Calls that nobody waits for one by one, as far as a stock store's results are defined.

    There a pull gives what the push before it made.  A push may overtake a pull or a push of its
    key, so each key is pushed first, and once.
    """
    chosen = draw(st.lists(st.sampled_from([*dense, *sparse]), min_size=1, unique=True))
    queues: List[List[Call]] = []
    for key in chosen:
        shared = {"keys": [key], "seed": draw(SEEDS), "devices": devices}
        options: Dict[str, Any] = {**shared, "priority": draw(PRIORITIES)}
        first = draw(st.sampled_from(["push", "none"] + (["pushpull"] if key in dense else [])))
        if first == "pushpull":
            options.update(in_place=draw(st.booleans()), compressed=compressed)
            queues.append([{"call": first, "with": options}])
            continue
        queue: List[Call] = [{"call": "push", "with": options}] if first == "push" else []
        for _ in range(draw(st.integers(0, 2))):
            if key in dense:
                queue.append({"call": "pull", "with": {"keys": [key], "count": 1}})
            else:
                rows = draw(st.lists(st.integers(0, sparse[key] - 1), min_size=1, max_size=4))
                queue.append({"call": "rows", "with": {"key": key, "row_ids": rows}})
        queues.append(queue)
    calls: List[Call] = []
    while any(queues):
        calls.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    return {"call": "together", "with": {"calls": calls}}


@st.composite
def sequences(
    draw: "st.DrawFn",
    names: bool,
    optimizer: bool = False,
    compressed: bool = False,
    more: "Tuple[str, ...]" = (),
) -> "List[Call]":
    """Draw calls; `more` kinds of them besides those that every store of several workers has."""
    calls: List[Call] = []
    devices = draw(st.integers(1, 3))  # more for a key than before end a stock worker
    if optimizer:
        calls.append(draw(optimizers(OPTIMIZERS)))
    count = 0
    dense: List[int] = []
    sparse: Dict[int, int] = {}  # how many rows each has

    def init() -> None:
        nonlocal count
        # For what stock servers do to other dtypes, see sequence_worker.py.
        plain = optimizer or compressed
        dtype = "float32" if plain else draw(st.sampled_from(DTYPES))
        rows = bool(dense) and not compressed and draw(st.booleans())
        shape = draw(st.sampled_from(list(ROWS))) if rows else draw(st.integers(0, 3))
        spec = {"shape": shape, "dtype": dtype, "rows": rows}
        if rows:
            sparse[count] = ROWS[shape]
        else:
            dense.append(count)
        how = draw(st.sampled_from(["init", "broadcast"]))
        more = {"key": count, "seed": draw(SEEDS), "how": how, "names": names}
        calls.append({"call": "init", "with": {**spec, **more}})
        count += 1

    init()
    for _ in range(draw(st.integers(1, 8))):
        calls_of_stock = [
            "init",
            "push",
            "pull",
            "pushpull",
            "rows",
            "barrier",
            "wrong",
            "together",
        ]
        kind = draw(st.sampled_from([*calls_of_stock, *more]))
        if kind == "init":
            if count < 5:
                init()
            continue
        if kind == "rows" and not sparse:
            continue
        if kind == "together":
            calls.append(draw(together(dense, sparse, devices, compressed)))
            continue
        if kind == "optimizer":
            calls.append(draw(optimizers(OPTIMIZERS)))
            continue
        options: Dict[str, Any] = {}
        if kind == "states":
            options = {"dump": draw(st.booleans()), "seed": draw(SEEDS), "key": dense[0]}
        elif kind == "wrong":
            options = {"which": draw(st.integers(0, 7))}
        elif kind == "pull":
            options = {"count": draw(st.integers(1, 3))}
        elif kind == "rows":
            key = draw(st.sampled_from(list(sparse)))
            row_ids = st.lists(st.integers(0, sparse[key] - 1), max_size=9)
            options = {"key": key, "row_ids": draw(row_ids)}
        elif kind in ("push", "pushpull"):
            options = {"seed": draw(SEEDS), "devices": devices, "priority": draw(PRIORITIES)}
        if kind == "pushpull":
            options.update(in_place=draw(st.booleans()), compressed=compressed)
        if kind in ("push", "pull", "pushpull"):
            fit = [*dense, *sparse] if kind == "push" else dense  # stock refuses others
            options["keys"] = draw(
                st.lists(st.sampled_from(fit), min_size=1, max_size=3, unique=True)
            )
        calls.append({"call": kind, "with": options})
    everything = {"keys": dense, "count": 1}
    calls.append({"call": "pull", "with": everything})
    for key, rows in sparse.items():
        calls.append({"call": "rows", "with": {"key": key, "row_ids": list(range(rows))}})
    return calls


BACK_ENDS = ["our servers", "stock servers"]
# The smallest partitions there are, and one in flight to each server.
SMALL = {"BYTESCHEDULER_PARTITION": "4096", "BYTESCHEDULER_CREDIT": "1"}
# On our servers: of the largest arrays some partitions are pushed and pulled by one message.
BOTH_WAYS = {"BYTESCHEDULER_PARTITION": "20000", "BYTESCHEDULER_CREDIT": "1"}


def agree(pools: "List[Pool]", calls: "List[Call]", rtol: float = 0) -> int:
    """Compare what the first pool's stores give with what the others' do, bit for bit or nearly.

    Return how many results there were to compare, of the worker with the fewest.
    """
    for pool in pools:
        pool.start(calls)
    stock, *ours = [pool.results() for pool in pools]
    for (back_end, got), rank in itertools.product(zip(BACK_ENDS, ours), range(len(stock))):
        assert len(stock[rank]) == len(got[rank])
        for index, (want, have) in enumerate(zip(stock[rank], got[rank])):
            where = f"{back_end}, rank {rank}, result {index}"
            assert want.dtype == have.dtype, where
            if rtol and want.dtype.kind == "f":
                np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol, err_msg=where)
            else:
                np.testing.assert_array_equal(have, want, err_msg=where)
    return min(map(len, stock))


def agree_on_many(
    pools: "List[Pool]", kind: "st.SearchStrategy[List[Call]]", examples: int, rtol: float = 0
) -> None:
    count = 0

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(kind)
    def each(calls: "List[Call]") -> None:
        nonlocal count
        count += 1
        assert agree(pools, calls, rtol) > 0

    each()
    assert count >= examples


@pytest.mark.parametrize("optimizer", [False, True], ids=["sums", "optimizer"])
def test_random_sequences_agree_with_a_stock_store(make_job: MakeJob, optimizer: bool) -> None:
    pools = [
        Pool(make_job(stock=True), "stock"),
        Pool(make_job(servers=2, env=BOTH_WAYS), "ours"),
        Pool(make_job(servers=2, stock=True, env=SMALL), "ours"),
    ]
    kind = sequences(names=not optimizer, optimizer=optimizer)
    if optimizer:
        kind = sequences(names=False, optimizer=True, more=("optimizer",))
    agree_on_many(pools, kind, 35)
    if not optimizer:
        # It cannot be unset, so these come last.
        agree(pools, [{"call": "compress", "with": {"threshold": 0.3}}])
        agree_on_many(pools, sequences(names=True, compressed=True), 25)
    end(pools)


def test_a_job_of_one_worker_agrees_with_a_local_store(make_job: MakeJob) -> None:
    """With states in files, which a stock store of several workers cannot write."""
    native = make_job(servers=2, workers=1, env=BOTH_WAYS)
    pools = [
        Pool(native, "local", workers=1),  # which has nothing to do with the job
        Pool(native, "ours", workers=1),
        Pool(make_job(servers=2, workers=1, stock=True, env=SMALL), "ours", workers=1),
    ]
    kind = sequences(names=False, optimizer=True, more=("optimizer", "states", "states"))
    agree_on_many(pools, kind, 25)
    end(pools)


def test_asynchronous_updates_of_one_worker_agree_with_a_stock_store(make_job: MakeJob) -> None:
    """With one worker it is told what they are; our servers update to rounding."""
    pools = [
        Pool(make_job(stock=True, workers=1), "stock-async", workers=1),
        Pool(make_job(servers=2, workers=1, env=BOTH_WAYS), "ours-async", workers=1),
        Pool(make_job(stock=True, workers=1), "ours-async", workers=1),
    ]
    kind = sequences(names=False, optimizer=True)
    agree_on_many(pools, kind, 25, rtol=1e-5)
    end(pools)

"""A worker that knows stock MXNet only: ``stock_worker.py STORE FILE CASE...``.

Runs the cases in their order and saves what they pulled in FILE-RANK.npz, so that jobs on different
servers can be compared, or a job with what it should get (stock_model.py has the numbers).
"""

import pathlib
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List

import mxnet as mx
import numpy as np
import stock_model
import two_bit_model
from stock_model import FLOATS, INTEGERS, SHAPES, STEPS, numbers, rows_of

Results = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]
KVStore = mx.kvstore.KVStore
Array = mx.nd.NDArray


def array(rank: int, step: int, key: int, dtype: str = "float32") -> Array:
    return mx.nd.array(numbers(rank, step, SHAPES[key], dtype), dtype=dtype)


def zeros(key: int, dtype: str = "float32") -> Array:
    return mx.nd.zeros(SHAPES[key], dtype=dtype)


def push_and_pull(kv: KVStore, results: Results, dtypes: "List[str]", first: int = 1000) -> None:
    for number, dtype in enumerate(dtypes):
        for key in SHAPES:
            name = first + 100 * number + key
            kv.init(name, array(100 + kv.rank, 0, key, dtype))
            out = zeros(key, dtype)
            kv.pull(name, out=out)
            results[f"{dtype} {key} init"] = out.asnumpy()
            for step in range(STEPS):
                kv.push(name, array(kv.rank, step, key, dtype), priority=-key)
                out = zeros(key, dtype)
                kv.pull(name, out=out)
                results[f"{dtype} {key} {step}"] = out.asnumpy()


def dense(kv: KVStore, results: Results) -> None:
    """Push and pull floats of all sizes, small arrays and one that is cut over the servers."""
    push_and_pull(kv, results, FLOATS)


def integers(kv: KVStore, results: Results) -> None:
    """Do the same with types that end a stock server."""
    push_and_pull(kv, results, INTEGERS)


def wide(kv: KVStore, results: Results) -> None:
    """Let the servers sum float16 in float32, as an optimizer with multi_precision does."""
    kv._send_command_to_servers(1, "")
    push_and_pull(kv, results, ["float16"])


def pushpull(kv: KVStore, results: Results) -> None:
    """Do it in one call, as Gluon does."""
    for key in SHAPES:
        out = zeros(key)
        kv.broadcast(300 + key, array(100 + kv.rank, 0, key), out=out)
        results[f"broadcast {key}"] = out.asnumpy()
    for step in range(STEPS):
        outs = {key: zeros(key) for key in SHAPES}
        for key, out in outs.items():
            kv.pushpull(300 + key, array(kv.rank, step, key), out=out, priority=-key)
        for key, out in outs.items():
            results[f"pushpull {key} {step}"] = out.asnumpy()


def unawaited(kv: KVStore, results: Results) -> None:
    """Wait for nothing: each worker's pushes count one a round."""
    kv.init(600, mx.nd.zeros(SHAPES[5]))
    values = [array(kv.rank, step, 5) for step in range(30)]
    mx.nd.waitall()
    for value in values:
        kv.push(600, value)
    out = zeros(5)
    kv.pull(600, out=out)
    results["unawaited"] = out.asnumpy()


def late(kv: KVStore, results: Results) -> None:
    """Let one worker's pushes wait for the other's for a while."""
    kv.init(650, mx.nd.zeros(SHAPES[5]))
    for step in range(STEPS):
        time.sleep(1.6 * kv.rank)
        kv.push(650, array(kv.rank, step, 5))
        out = zeros(5)
        kv.pull(650, out=out)
        results[f"late {step}"] = out.asnumpy()


def rows(kv: KVStore, results: Results) -> None:
    """Push some rows of a row_sparse array, also none, and pull some."""
    for name, key in ((701, 5), (702, 11)):
        kv.init(name, array(100 + kv.rank, 0, key).tostype("row_sparse"))
        for step in range(STEPS):
            mine = rows_of(kv.rank, step, SHAPES[key])
            value = mx.nd.sparse.row_sparse_array(
                (numbers(kv.rank, step, SHAPES[key])[mine], mine), shape=SHAPES[key]
            )
            kv.push(name, value)
            out = mx.nd.sparse.zeros("row_sparse", SHAPES[key])
            wanted = mx.nd.array(np.arange(SHAPES[key][0] - 1, -1, -2), dtype="int64")
            kv.row_sparse_pull(name, out=out, row_ids=wanted)
            results[f"rows {key} {step}"] = out.asnumpy()


def commands(kv: KVStore, _: Results) -> None:
    """Send what the servers need not obey, but must answer."""
    if kv.rank == 0:
        for head, body in ((5, "filename:p.json,profile_all:True,0"), (5, "11"), (77, "what?")):
            kv._send_command_to_servers(head, body)


def profiled(kv: KVStore, results: Results) -> None:
    """Have the servers profile the requests of a key: not its first, nor those of a pause."""
    where = {"profile_process": "server"}

    def everywhere(command: "Callable[..., object]", *arguments: str) -> None:
        command(*arguments, **where)  # by rank 0; MXNet's others send none
        kv._barrier()

    def push_and_read(steps: int) -> None:
        for step in range(steps):
            kv.push(400, array(kv.rank, step, 7))
            out = zeros(7)
            kv.pull(400, out=out)
            results[f"profiled {step}"] = out.asnumpy()
        kv._barrier()

    mx.profiler.set_config(filename="servers.json", profile_all=True, **where)
    kv.init(400, mx.nd.zeros(SHAPES[7]))
    everywhere(mx.profiler.set_state, "run")
    push_and_read(3)
    everywhere(mx.profiler.pause)
    push_and_read(4)
    everywhere(mx.profiler.resume)
    everywhere(mx.profiler.set_state, "stop")
    everywhere(lambda **there: mx.profiler.dump(finished=True, **there))


def another_size(kv: KVStore, _: Results) -> None:
    """Do what fails: the workers disagree about the size of an array."""
    kv.init(1, mx.nd.zeros((4,)))
    out = mx.nd.zeros((4 + kv.rank,))
    kv.pushpull(1, mx.nd.ones((4 + kv.rank,)), out=out)
    print("never comes", out.asnumpy())


def updates(kv: KVStore, results: Results) -> None:
    """Let the servers update: dense arrays, one of them cut, and float16 kept in float32."""
    for number, (dtype, optimizer) in enumerate(
        [
            ("float32", mx.optimizer.Adam(learning_rate=0.1, wd=0.01)),
            ("float16", mx.optimizer.SGD(momentum=0.9, wd=0.01, multi_precision=True)),
        ]
    ):
        kv.set_optimizer(optimizer)
        push_and_pull(kv, results, [dtype], first=2000 + 100 * number)


def rows_updated(kv: KVStore, results: Results) -> None:
    """Let the servers update rows only that were pushed, with momentum and decay."""
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.1, lazy_update=True))
    rows(kv, results)


def two_bits(kv: KVStore, results: Results) -> None:
    """Push in two bits an element, which cannot be taken back: it is the last of the cases."""
    kv.set_gradient_compression({"type": "2bit", "threshold": two_bit_model.THRESHOLD})
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    for key in two_bit_model.SHAPES:
        kv.init(800 + key, mx.nd.zeros(two_bit_model.SHAPES[key]))
    for step, mine in enumerate(two_bit_model.gradients(kv.rank)[:STEPS]):
        for key, gradient in mine.items():
            kv.push(800 + key, mx.nd.array(gradient), priority=-key)
            out = mx.nd.zeros(two_bit_model.SHAPES[key])
            kv.pull(800 + key, out=out)
            results[f"two bits {key} {step}"] = out.asnumpy()


ALONE = [900, 901]  # of two servers each has one


def push_alone(kv: KVStore) -> "Callable[[], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]":
    """Push to a dist_async store 50 times, and return what pulls the values."""
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    kv.init(ALONE, [mx.nd.zeros((4,)), mx.nd.zeros((4,))])
    kv._barrier()
    for _ in range(50):
        for key in ALONE:
            kv.push(key, mx.nd.full((4,), kv.rank + 1.0))
    outs = [mx.nd.zeros((4,)), mx.nd.zeros((4,))]

    def pull() -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        kv.pull(ALONE, out=outs)
        return np.stack([out.asnumpy() for out in outs])

    return pull


def each_alone(kv: KVStore, results: Results) -> None:
    """Whoever pushes, the sum of all updates is the same, and who pulls has its own in it."""
    pull = push_alone(kv)
    assert (pull() >= 50 * (kv.rank + 1)).all()
    kv._barrier()
    results["each alone"] = pull()


def each_in_the_end(kv: KVStore, results: Results) -> None:
    """A stock server acknowledges an asynchronous push before it has made the update."""
    pull = push_alone(kv)
    kv._barrier()
    end = time.monotonic() + 60
    while (pull() < 150).any() and time.monotonic() < end:
        time.sleep(0.02)  # nobody tells
    time.sleep(0.2)  # what counts twice comes later
    results["each alone"] = pull()
    kv._barrier()


def given_in_turn(kind: str, key: int, rank: int, step: int, *, every_row: bool = False) -> Array:
    shape = SHAPES[key]
    values = stock_model.pushed_in_turn(rank, step, shape)
    if kind != "rows":
        return mx.nd.array(values, dtype=stock_model.dtype_of(kind))
    rows = np.arange(shape[0]) if every_row else rows_of(rank, step, shape)
    return mx.nd.sparse.row_sparse_array((values[rows], rows), shape, dtype="float32")


def take_turns(kv: KVStore, kinds: "List[str]") -> "Callable[[], Results]":
    """Push to a dist_async store, one worker after the other, and return what pulls the values."""
    names = {
        key: 3000 + number for number, key in enumerate(stock_model.IN_TURNS) if key[0] in kinds
    }
    for key, name in names.items():
        kv.init(name, given_in_turn(*key, 100 + kv.rank, 0, every_row=True))
    for step in range(STEPS):
        for rank in range(2):
            if rank == kv.rank:
                for key, name in names.items():
                    kv.push(name, given_in_turn(*key, rank, step))
                mx.nd.waitall()
            kv._barrier()

    def pull() -> Results:
        got = {}
        for (kind, key), name in names.items():
            out = zeros(key, stock_model.dtype_of(kind))
            if kind == "rows":
                out = out.tostype("row_sparse")
                kv.row_sparse_pull(name, out=out, row_ids=mx.nd.arange(SHAPES[key][0]))
            else:
                kv.pull(name, out=out)
            got[f"{kind} {key} after turns"] = out.asnumpy()
        return got

    return pull


def pushes_of_all_kinds(kv: KVStore) -> "Iterator[Callable[[], Results]]":
    """Yield what pulls the values: once before compression, which cannot be taken back."""
    kv.set_optimizer(
        mx.optimizer.SGD(learning_rate=-1, momentum=stock_model.MOMENTUM, multi_precision=True)
    )
    kv._barrier()
    yield take_turns(kv, ["dense", "half", "rows"])
    kv.set_gradient_compression({"type": "2bit", "threshold": stock_model.THRESHOLD})
    kv._barrier()
    yield take_turns(kv, ["two bits"])


def in_turns(kv: KVStore, results: Results) -> None:
    """Every update has been made when its push is answered."""
    for pull in pushes_of_all_kinds(kv):
        results.update(pull())


def in_turns_in_the_end(kv: KVStore, results: Results) -> None:
    """Wait for updates that a stock server has only acknowledged."""
    wanted = stock_model.after_turns()
    for pull in pushes_of_all_kinds(kv):
        end = time.monotonic() + 60
        while any((got != wanted[name]).any() for name, got in pull().items()):
            if time.monotonic() > end:
                break
            time.sleep(0.02)  # nobody tells
        results.update(pull())
        kv._barrier()


def without_an_optimizer(kv: KVStore, _: Results) -> None:
    """Do what fails: push to a dist_async store that can update nothing."""
    kv.init(1, mx.nd.zeros((4,)))
    kv.push(1, mx.nd.ones((4,)))
    out = mx.nd.zeros((4,))
    kv.pull(1, out=out)
    print("never comes", out.asnumpy())


def never_pushed_by_rank_1(kv: KVStore, _: Results) -> None:
    """Do what fails: wait for the sum of a worker that lives and never pushes."""
    kv.init(1, mx.nd.zeros((4,)))
    if kv.rank == 1:
        threading.Event().wait()
    kv.push(1, mx.nd.ones((4,)))
    mx.nd.waitall()
    print("never comes")


class Halfway(mx.optimizer.Optimizer):  # type: ignore[misc]
    """An optimizer that no server knows."""


def another_optimizer(kv: KVStore, _: Results) -> None:
    """Do what fails: have the servers load what they do not trust."""
    kv.set_optimizer(Halfway())
    print("never comes")


def train_for_long(kv: KVStore, _: Results) -> None:
    train(kv, 0)


def train_at_a_word(kv: KVStore, _: Results) -> None:
    train(kv, 5)


def train(kv: KVStore, pause: int) -> None:
    keys, outs = [1, 2], [mx.nd.zeros((4,)), mx.nd.zeros((4,))]  # one on each server
    kv.init(keys, outs)
    for step in range(1_000_000):
        if step and step == pause:
            wait_for_a_word()
        mine = [mx.nd.full((4,), step % 1000) for _ in keys]
        kv.pushpull(keys, mine, out=outs)
        for out in outs:
            assert (out.asnumpy() == kv.num_workers * (step % 1000)).all(), f"a wrong sum: {out}"
        if step == 3:
            print(f"training as worker {kv.rank}")


def wait_for_a_word() -> None:
    print("waiting")
    deadline = time.monotonic() + 60
    while not pathlib.Path("go").exists():
        assert time.monotonic() < deadline, "nobody says go"
        time.sleep(0.01)


CASES: "Dict[str, Callable[[KVStore, Results], None]]" = {
    f.__name__: f
    for f in (
        *(dense, integers, wide, pushpull, unawaited, late, rows, commands, profiled),
        *(updates, rows_updated, two_bits, each_alone, each_in_the_end),
        *(in_turns, in_turns_in_the_end),
        *(another_size, another_optimizer, without_an_optimizer),
        *(never_pushed_by_rank_1, train_for_long, train_at_a_word),
    )
}


def run(store: str, file: str, cases: "List[str]") -> None:
    kv = mx.kv.create(store)
    results: Results = {}
    for case in cases:
        CASES[case](kv, results)
    np.savez(f"{file}-{kv.rank}", **results)


def main() -> None:
    store, file, *cases = sys.argv[1:]
    run(store, file, cases)


if __name__ == "__main__":
    main()

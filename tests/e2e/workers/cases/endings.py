"""Processes that end in every way after their sums are right: `endings.py KIND CASE=PORT ...`.

Without ports the cases run in this very process.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import multiprocessing.pool
import os
import socket
import sys
import threading
import time
from typing import List

import mxnet as mx
from children import in_turn

from bytescheduler.mxnet import ScheduledKVS

KIND = sys.argv[1]
KEPT: List[ScheduledKVS] = []
POOLS: List[multiprocessing.pool.Pool] = []


def add_up() -> ScheduledKVS:
    """Return a store whose sum is right."""
    kvs = ScheduledKVS(mx.kv.create(KIND))
    kvs.init("a", mx.nd.zeros(2))
    out = mx.nd.zeros(2)
    kvs.push("a", mx.nd.ones(2))
    kvs.pull("a", out)
    assert (out.asnumpy() == kvs.num_workers).all()
    return kvs


def daemon() -> None:
    """Leave a daemon thread whose function knows all that this module has."""
    threading.Thread(target=lambda: threading.Event().wait(len(KEPT) + 1e6), daemon=True).start()
    KEPT.append(add_up())


def registered() -> None:
    """Leave a class in MXNet's registry, and a cache, that keep the store after `close`."""
    store = functools.lru_cache(None)(add_up)

    @mx.optimizer.register
    class Mine(mx.optimizer.SGD):
        stores = KEPT
        find = staticmethod(store)

    store().close()
    KEPT.append(store())


def attribute() -> None:
    """Leave the store where no garbage collector looks for it."""
    mx.my_store = add_up()


def trial() -> None:
    KEPT.append(add_up())


def child() -> None:
    """Let a child of multiprocessing be the worker."""
    process = multiprocessing.get_context("fork").Process(target=trial)
    process.start()
    process.join()
    assert process.exitcode == 0


def pooled() -> None:
    """Let a child of a pool be the worker, which is a fresh interpreter."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(trial).result()


def around() -> None:
    """Fork a pool that outlives this function while there is a store."""
    store = add_up()
    KEPT.append(store)
    POOLS.append(multiprocessing.get_context("fork").Pool(1))
    assert POOLS[0].apply(abs, (-1,)) == 1
    store.push("a", mx.nd.ones(2))


def failing() -> None:
    KEPT.append(add_up())
    raise ValueError("no luck")


def unlucky() -> None:
    """Let a child end by an exception that it does not catch."""
    process = multiprocessing.get_context("fork").Process(target=failing)
    process.start()
    process.join()
    sys.exit(process.exitcode)


def late() -> None:
    """Begin another trial when scheduler node and servers have ended."""
    child()
    root = (os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"]))
    end = time.monotonic() + 60
    with contextlib.suppress(ConnectionRefusedError):
        while time.monotonic() < end:
            socket.create_connection(root).close()
            time.sleep(0.1)
    child()


def skipped() -> None:
    """Skip the clean-up of Python behind `close`."""
    add_up().close()
    print("well done", flush=True)
    os._exit(0)


def untold() -> None:
    """Skip it without `close`; bslaunch sees that the process ends with 0."""
    KEPT.append(add_up())
    print("well done", flush=True)
    os._exit(0)


def main(cases: List[str]) -> None:
    for case in cases:
        globals()[case]()
        print("well done", flush=True)


if __name__ == "__main__":
    if "=" in sys.argv[2]:
        in_turn(sys.argv[2:], main)
    else:
        main(sys.argv[2:])

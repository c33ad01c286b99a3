"""Other partitions and another credit all the time, decided by rank 0 while a job trains."""

import contextlib
import itertools
import threading
from typing import Iterator

from bytescheduler.mxnet import ScheduledKVS

POINTS = [(4096, 16384), (16384, 16384), (8192, 65536)]
PAUSE_S = 0.01
LEAST = 10


@contextlib.contextmanager
def all_the_time(store: ScheduledKVS) -> Iterator[None]:
    """Change over every few steps, as a search does; an error if there were no changes."""
    over = threading.Event()
    changes = []

    def change() -> None:
        for point in itertools.cycle(POINTS):
            if over.wait(PAUSE_S):
                return
            store.retune(*point)
            changes.append(point)

    thread = threading.Thread(target=change)
    if store.rank == 0:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if store.rank == 0:
            thread.join()
    assert store.rank != 0 or len(changes) >= LEAST, changes

"""A worker whose process hosts a server; arguments: the number of sums, and how to agree on a port.

It prints each sum of its rank and of the others'.  "store": by the rendezvous of torch.
"""

import ctypes
import importlib
import sys
from typing import Optional

from bytescheduler._session.direct import Agree, Listen, Root, open_worker

FLOAT32, KEY, COUNT = 0, 7, 50_000


def agree_by_store(listen: Optional[Listen]) -> Root:
    """Agree on a port as bytescheduler.torch does, where torch is installed."""
    distributed = importlib.import_module("torch.distributed")
    store, _, _ = next(iter(distributed.rendezvous("env://")))
    if listen is not None:
        store.set("port", str(listen("")))
    return Root("", int(store.get("port")))


AGREE: "dict[str, Optional[Agree]]" = {"": None, "store": agree_by_store}


def say(line: str) -> None:
    """Write a line at once, so that lines of processes with one pipe never mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(sums: int, how: str) -> None:
    """Sum over and over; then leave."""
    worker = open_worker(AGREE[how])
    rank, size = worker.rank, worker.num_workers
    say(f"rank {rank} of {size}, {worker.num_servers} servers")
    sent, received = (ctypes.c_float * COUNT)(), (ctypes.c_float * COUNT)()
    nbytes = ctypes.sizeof(sent)
    worker.broadcast([(KEY, FLOAT32, ctypes.addressof(sent), nbytes)], owner=sent)
    worker.name_key(KEY, "the only one")
    for step in range(sums):
        for i in range(COUNT):
            sent[i] = rank + step
        pending = worker.start_push_pull(
            *(KEY, ctypes.addressof(sent), ctypes.addressof(received), nbytes),
            owner=(sent, received),
            factor=1 / size,
        )
        pending.wait()
        say(f"average {step} is {received[0]:g} to {received[COUNT - 1]:g}")
    worker.close()
    say("left")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")

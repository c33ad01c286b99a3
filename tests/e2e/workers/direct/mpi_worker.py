"""A worker whose sums MPI makes: ``mpi_worker.py WHAT [FILE]``.

WHAT is a number of steps, or what goes wrong on rank 1:

lost
    It kills itself before its second sum.
inside
    It kills itself while MPI sums.
sizes
    Its array is longer.
order
    It sums another key.
compression
    It compresses its array.

The worker prints a hash of its sums, and how many operations MPI made.  With FILE, a library of
MPI, the script initialises MPI by itself.
"""

import array
import ctypes
import hashlib
import os
import signal
import sys
from typing import List, Optional

from bytescheduler._native import Coding, Worker
from bytescheduler._session.direct import open_worker
from bytescheduler.errors import Error

FLOAT32, KEYS, COUNT = 0, (7, 8), 50_000
WHOLE_KEY, CODED_KEY, WHOLE_COUNT = 9, 10, 20_000
BF16 = Coding("bf16", {})
THREAD_MULTIPLE = {"libmpi.so.12": 3, "libmpi.so.40": 3, "libmpi_abi.so.1": 4096}
# A sum of many operations.
LONG = 1 << 24
CUT = {"BYTESCHEDULER_PARTITION": "256KiB", "BYTESCHEDULER_CREDIT": "512KiB"}
SOON = {"BYTESCHEDULER_STRAGGLER_TIMEOUT": "3s"}


def initialised(file: str) -> ctypes.CDLL:
    """Return the library of this process, with MPI initialised as mpi4py does it."""
    library = ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
    level = ctypes.c_int()
    wanted = THREAD_MULTIPLE[os.path.basename(file)]
    assert library.MPI_Init_thread(None, None, wanted, ctypes.byref(level)) == 0
    assert level.value == wanted
    return library


def operations(worker: Worker) -> int:
    """Return how many operations MPI has ended."""
    return {row.name: int(row.value) for row in worker.measure()}["library_operations_total"]


def kill_itself() -> None:
    """End as a lost worker does."""
    os.kill(os.getpid(), signal.SIGKILL)


def sums(worker: Worker, what: str) -> str:
    """Sum over and over; return a hash of all sums."""
    wrong = what if worker.rank == 1 else ""
    count = LONG if what == "inside" else COUNT + (wrong == "sizes")
    repeated = array.array("f", [1 / (1 + i + 3 * worker.rank) for i in range(COUNT)])
    sent = repeated * (count // COUNT) + repeated[: count % COUNT]
    received = array.array("f", bytes(4 * count))
    address, nbytes = sent.buffer_info()[0], 4 * count
    for key in KEYS:
        worker.broadcast([(key, FLOAT32, received.buffer_info()[0], nbytes)], owner=received)
    digest = hashlib.sha256()
    for step in range(int(what) if what.isdigit() else 1000):
        if wrong == "lost" and step == 1:
            kill_itself()
        pending = worker.start_push_pull(
            *(KEYS[wrong == "order"], address, received.buffer_info()[0], nbytes),
            owner=(sent, received),
            coding=BF16 if wrong == "compression" else None,
        )
        while wrong == "inside":
            if operations(worker) >= 5:  # and most of this sum are to come
                kill_itself()
        pending.wait()
        digest.update(received.tobytes())
    return digest.hexdigest()


def sum_of_new_key(
    worker: Worker, key: int, sent: "array.array[float]", coding: Optional[Coding] = None
) -> List[float]:
    """Return the first sum of a key."""
    received = array.array("f", bytes(4 * len(sent)))
    address, nbytes = received.buffer_info()[0], 4 * len(sent)
    worker.broadcast([(key, FLOAT32, address, nbytes)], owner=received, coding=coding)
    place = (key, sent.buffer_info()[0], address, nbytes)
    worker.start_push_pull(*place, owner=(sent, received), coding=coding).wait()
    return list(received)


def check_whole_sum(worker: Worker) -> None:
    """Sum whole numbers, of which float32 has the exact sum, with another part of each rank."""
    sent = array.array("f", [i * (worker.rank + 1) for i in range(WHOLE_COUNT)])
    factor = worker.num_workers * (worker.num_workers + 1) // 2
    expected = [i * factor for i in range(WHOLE_COUNT)]
    assert sum_of_new_key(worker, WHOLE_KEY, sent) == expected, worker.rank


def check_coded_sum(worker: Worker) -> None:
    """Sum in bf16, which drops the fractions; MPI has no part in it.

    bf16 has all whole numbers up to 256, so it has the sums of up to four workers.
    """
    whole = [1 + i % 20 for i in range(WHOLE_COUNT)]
    sent = array.array("f", [i * (worker.rank + 1) + 2**-10 for i in whole])
    factor = worker.num_workers * (worker.num_workers + 1) // 2
    before = operations(worker)
    coded = sum_of_new_key(worker, CODED_KEY, sent, BF16)
    assert coded == [i * factor for i in whole], worker.rank
    assert operations(worker) == before, "MPI has summed a coded key"


def main(what: str, file: Optional[str]) -> None:
    """Sum, then leave."""
    os.environ.update(CUT if what == "inside" else SOON if what == "order" else {})
    own = initialised(file) if file else None
    worker = open_worker(None)
    try:
        digest = sums(worker, what)
        check_whole_sum(worker)
        check_coded_sum(worker)
    except Error as error:
        worker.fail(str(error))
        worker.close()
        raise
    place = f"rank {worker.rank} of {worker.num_workers}"
    about = f"{digest}, {operations(worker)} operations"
    worker.close()
    sys.stdout.write(f"sums of {place}: {about}\n")
    sys.stdout.flush()
    if own is not None:
        ended = ctypes.c_int()
        own.MPI_Finalized(ctypes.byref(ended))
        assert not ended.value
        assert own.MPI_Finalize() == 0


main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)

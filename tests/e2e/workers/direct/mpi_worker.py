"""A worker whose sums MPI makes: ``mpi_worker.py STEPS [FILE]``.

It prints a hash of its sums, and how many operations MPI made.  With FILE, a library of MPI, the
script initialises MPI by itself.  Without STEPS rank 1 kills itself in the second sum.
"""

import array
import ctypes
import hashlib
import os
import signal
import sys
from typing import Optional

from bytescheduler._session.direct import open_worker

FLOAT32, KEY, COUNT = 0, 7, 50_000
THREAD_MULTIPLE = {"libmpi.so.12": 3, "libmpi.so.40": 3, "libmpi_abi.so.1": 4096}


def initialised(file: str) -> ctypes.CDLL:
    """Return the library of this process, with MPI initialised as mpi4py does it."""
    library = ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
    level = ctypes.c_int()
    wanted = THREAD_MULTIPLE[os.path.basename(file)]
    assert library.MPI_Init_thread(None, None, wanted, ctypes.byref(level)) == 0
    assert level.value == wanted
    return library


def main(steps: int, file: Optional[str]) -> None:
    """Sum over and over; then leave."""
    own = initialised(file) if file else None
    worker = open_worker(None)
    rank, size = worker.rank, worker.num_workers
    sent = array.array("f", [1 / (1 + i + 3 * rank) for i in range(COUNT)])
    received = array.array("f", bytes(4 * COUNT))
    address, nbytes = sent.buffer_info()[0], 4 * COUNT
    worker.broadcast([(KEY, FLOAT32, received.buffer_info()[0], nbytes)], owner=received)
    digest = hashlib.sha256()
    for step in range(steps or 1000):
        if not steps and rank == 1 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        worker.start_push_pull(
            *(KEY, address, received.buffer_info()[0], nbytes), owner=(sent, received)
        ).wait()
        digest.update(received.tobytes())
    operations = {row.name: int(row.value) for row in worker.measure()}["library_operations_total"]
    worker.close()
    text = f"sums of rank {rank} of {size}: {digest.hexdigest()}, {operations} operations\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    if own is not None:
        ended = ctypes.c_int()
        own.MPI_Finalized(ctypes.byref(ended))
        assert not ended.value
        assert own.MPI_Finalize() == 0


main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, sys.argv[2] if len(sys.argv) > 2 else None)

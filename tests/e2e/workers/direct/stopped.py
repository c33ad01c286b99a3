"""A worker without a framework that sums until a worker gets SIGTERM: ``stopped.py [deaf]``.

All workers then end after the same sum.  deaf: they do not hear the signal.
"""

import ctypes
import os
import signal
import sys
import time
from typing import List

from bytescheduler._session.direct import open_worker

FLOAT32, KEY, COUNT = 0, 7, 50_000


def say(line: str) -> None:
    """Write a line at once, so that lines of processes with one pipe never mix."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(deaf: bool) -> None:
    """Sum over and over; save; leave."""
    signals: List[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: signals.append(1))
    worker = open_worker()
    sent, received = (ctypes.c_float * COUNT)(), (ctypes.c_float * COUNT)()
    nbytes = ctypes.sizeof(sent)
    worker.broadcast([(KEY, FLOAT32, ctypes.addressof(sent), nbytes)], owner=sent)
    sums = 0
    while received[0] == 0:
        sent[0] = len(signals)
        places = (ctypes.addressof(sent), ctypes.addressof(received))
        worker.start_push_pull(KEY, *places, nbytes, owner=(sent, received)).wait()
        sums += 1
        if sums == 3:
            say(f"process {os.getpid()} trains")
    while not signals:  # which would end a process that ends already
        time.sleep(0.01)
    say("saved")
    worker.close()


if __name__ == "__main__":
    main("deaf" in sys.argv)

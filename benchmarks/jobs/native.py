"""Tensors of our engine in one piece of memory, without MXNet, whose sums are checked."""

import ctypes
import itertools
from typing import Sequence

from bytescheduler._native import Worker

FLOAT32 = 0  # MXNet's code


class Tensors:
    """A worker and, for each of its keys, memory full of ones; opened when it is made."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.worker = Worker.open()
        self._sizes = sizes
        self._at = list(itertools.accumulate(sizes, initial=0))
        total = self._at[-1]
        self._memory = ctypes.create_string_buffer(2 * total)
        self._send = ctypes.addressof(self._memory)
        self._recv = self._send + total
        block = bytes(ctypes.c_float(1.0)) * 1024
        for at in range(0, total, len(block)):
            ctypes.memmove(self._send + at, block, min(len(block), total - at))
        ctypes.memset(self._recv, 1, total)  # it is there, and no sum

    def declare(self, first: int, last: int) -> None:
        """Declare keys."""
        rows = [
            (key, FLOAT32, self._recv + self._at[key], self._sizes[key])
            for key in range(first, last)
        ]
        self.worker.broadcast(rows, owner=self)

    def sums(self, first: int, last: int) -> None:
        """Sum keys, all at once, the first the most urgent."""
        pending = [
            self.worker.start_push_pull(
                key,
                self._send + self._at[key],
                self._recv + self._at[key],
                self._sizes[key],
                owner=self,
                priority=-key,
            )
            for key in reversed(range(first, last))
        ]
        for one in pending:
            one.wait()

    def check(self, first: int, last: int) -> None:
        """Look at the sums, and spoil them, so that none is looked at twice."""
        block = bytes(ctypes.c_float(self.worker.num_workers)) * 1024
        for key in range(first, last):
            begin, size = self._recv + self._at[key], self._sizes[key]
            for at in range(0, size, len(block)):
                length = min(len(block), size - at)
                if ctypes.string_at(begin + at, length) != block[:length]:
                    raise SystemExit(f"a sum of key {key} is wrong")
            ctypes.memset(begin, 1, size)

    def close(self) -> None:
        """Leave together: no worker ends while another measures."""
        self.worker.barrier()
        self.worker.close()

"""A FIFO that processes hold open, for tests that ask whether those have started or are gone."""

import os
import pathlib
import select

_LIMIT_S = 60


class HeldFifo:
    """Tells when processes live and when all are gone, without looking at their numbers.

    A process opens `path` for writing and writes a line; what it starts inherits the descriptor.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "held")
        os.mkfifo(self.path)
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def __enter__(self) -> "HeldFifo":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _read(self) -> bytes:
        readable, _, _ = select.select([self._descriptor], [], [], _LIMIT_S)
        assert readable, "nobody wrote, and somebody still holds the FIFO"
        return os.read(self._descriptor, 1 << 16)

    def await_started(self, count: int) -> None:
        """Block until `count` lines have been written."""
        while count > 0:
            got = self._read()
            assert got, "the holders ended before all had started"
            count -= got.count(b"\n")

    def await_gone(self) -> None:
        """Block until no process holds the FIFO, and at least one did."""
        while self._read():
            pass

"""Copies the output of several processes to a descriptor, in whole lines with prefixes."""

import os
import re
import select
import threading
import time
from typing import Callable, List, Optional

from bytescheduler._process.stdout import why_lost

__all__ = ["Printer"]

_COLOURS = (36, 33, 32, 35, 34, 31)
_MAX_LINE_BYTES = 64 << 10  # a longer line is cut into several
# The beginnings of log lines: of frameworks written in C++, and of the engine.
_LOG = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+:\d+: |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} [A-Z]+ ")
# Other text may hold these too, so they count only behind a drawn progress bar.
_SAID = re.compile(rb"bytescheduler: |(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):\S+:")
_TRACEBACK = b"Traceback (most recent call last):"
_INTERRUPTED = b"interrupted"
_MAX_TRACEBACK_LINES = 1000
# From the begin of a traceback to the end of a process, if that ends by it: in a job that runs, and
# in one that ends.
_LAST_WORDS_S = 3.0
_LONGER_S = 30.0
_REDRAW_S = 5.0  # how often a line that redraws itself is shown


def _write_all(target: int, content: bytes) -> None:
    while content:
        try:
            content = content[os.write(target, content) :]
        except BlockingIOError:  # another process made the terminal non-blocking
            select.select([], [target], [])


class _Ending:
    """Holds the lines from a traceback on, which may be the last of a process."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        clock: Callable[[], float],
        limit_s: Callable[[], float],
    ) -> None:
        self._write = write
        self._clock = clock
        self._limit_s = limit_s
        self._since = 0.0
        self.lines: List[bytes] = []

    def take(self, line: bytes) -> None:
        """Hold or write a line."""
        if not self.lines and line.rstrip(b"\r") != _TRACEBACK:
            self._write(line)
            return
        if not self.lines:
            self._since = self._clock()
        self.lines.append(line)
        if len(self.lines) > _MAX_TRACEBACK_LINES:
            self.release()

    def await_more(self, source: int) -> None:
        """Wait until the descriptor has more; release what is held if the process lives on."""
        while self.lines:
            left = max(0.0, self._since + self._limit_s() - self._clock())
            if not left:
                self.release()
            elif select.select([source], [], [], left)[0]:
                return

    def release(self) -> None:
        """Write what is held."""
        for line in self.lines:
            self._write(line)
        self.lines = []


class Printer:
    """Writes lines to a descriptor that several threads share.

    Bytes pass through as they are.  A progress bar redraws itself after a carriage return: its last
    state is written when its line ends, and its current state every few seconds meanwhile.

    Parameters
    ----------
    target : int
        The descriptor where the lines go; not closed.
    prefixes, colour : bool
        True to give lines a prefix, and to colour it.
    on_broken : callable
        Called once, on any thread, when the target has no reader any more; lines are lost from
        then on.
    on_lost : callable
        Called once, on any thread, with the reason why a line could not be written, such as a full
        disk; later lines are tried again.
    clock : callable
        Returns seconds of a monotonic clock.
    """

    def __init__(
        self,
        target: int,
        *,
        prefixes: bool,
        colour: bool,
        on_broken: Callable[[], None],
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._prefixes = prefixes
        self._colour = colour
        self._on_broken = on_broken
        self._on_lost = on_lost
        self._clock = clock
        self._lock = threading.Lock()
        self._broken = False
        self._lost = False
        self._muted = False
        self._shortens = False
        self._limit_s = _LAST_WORDS_S

    def prefix(self, name: str, index: int) -> bytes:
        """Return the prefix of each line of `name`, the process number `index`."""
        if not self._prefixes:
            return b""
        if self._colour:
            return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{name}]\x1b[0m ".encode()
        return f"[{name}] ".encode()

    def mute(self) -> None:
        """Write nothing from now on; the output is still read.  Any thread may call it."""
        with self._lock:
            self._muted = True

    def shorten_interrupts(self) -> None:
        """Write a line instead of each traceback of a KeyboardInterrupt from now on.

        Any thread may call it.
        """
        self._shortens = True

    def await_ends(self) -> None:
        """Expect processes to end from now on, which may take longer.  Any thread may call it."""
        self._limit_s = _LONGER_S

    def write(self, prefix: bytes, line: bytes) -> None:
        """Write a line, without the text that a carriage return in it takes back.

        A line of a log that begins behind a progress bar is a line of its own.
        """
        text = line.rstrip(b"\r")
        text = text[text.rfind(b"\r") + 1 :]
        log = _LOG.search(text, 1) or (_SAID.search(text, 1) if b"\r" in line else None)
        lines = [text]
        if log is not None:
            bar = text[: log.start()].rstrip()
            lines = [*([bar] if bar else []), text[log.start() :]]
        with self._lock:
            if self._broken or self._muted:
                return
            try:
                _write_all(
                    self._target, b"".join(prefix + output_line + b"\n" for output_line in lines)
                )
            except BrokenPipeError:
                self._broken = True
                self._on_broken()
            except OSError as error:
                if not self._lost:
                    self._lost = True
                    self._on_lost(why_lost(error))

    def write_all(self, prefix: bytes, lines: List[bytes]) -> None:
        """Write lines of one process."""
        held: List[bytes] = []
        for line in lines:
            held = self._write_or_hold(prefix, held, line)
        for line in held:
            self.write(prefix, line)

    def copy(
        self,
        prefix: bytes,
        source: int,
        on_last: Optional[Callable[[List[bytes]], None]] = None,
    ) -> None:
        """Copy lines from the descriptor `source` until it ends, then close it.

        A traceback, and what comes within three seconds behind it, goes to `on_last` instead if
        it is the last that comes.  Blocks; meant for a thread of its own.  Goes on reading when the
        target is broken, so that the writer is never held up.
        """
        pending = b""
        held: List[bytes] = []  # a traceback, perhaps of an interrupt

        def write(line: bytes) -> None:
            nonlocal held
            held = self._write_or_hold(prefix, held, line)

        ending = _Ending(write, self._clock, lambda: self._limit_s)
        take = write if on_last is None else ending.take
        shown = self._clock()
        while True:
            ending.await_more(source)
            chunk = os.read(source, 1 << 16)
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                take(line)
            bar, redrawn, rest = pending.rpartition(b"\r")
            if redrawn and bar.strip(b"\r") and self._clock() - shown >= _REDRAW_S:
                self.write(prefix, bar)
                pending, shown = rest, self._clock()
            if len(pending) > _MAX_LINE_BYTES:
                pending = rest  # all there is, unless it redraws itself
            while len(pending) > _MAX_LINE_BYTES:
                self.write(prefix, pending[:_MAX_LINE_BYTES])
                pending = pending[_MAX_LINE_BYTES:]
        if pending:
            take(pending)
        for line in held:
            self.write(prefix, line)
        if on_last is not None and ending.lines:
            on_last(ending.lines)
        os.close(source)

    def _write_or_hold(self, prefix: bytes, held: List[bytes], line: bytes) -> List[bytes]:
        """Write `line` behind the lines held back for it; return the lines held back now."""
        if held and line.startswith(b" ") and len(held) < _MAX_TRACEBACK_LINES:
            return [*held, line]
        if held and line.startswith(b"KeyboardInterrupt"):
            self.write(prefix, _INTERRUPTED)
            return []
        for held_line in held:
            self.write(prefix, held_line)
        if self._shortens and line.rstrip(b"\r") == _TRACEBACK:
            return [line]
        self.write(prefix, line)
        return []

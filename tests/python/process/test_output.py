"""Lines of several processes in one place: prefixes, progress bars, long lines, a lost reader."""

import errno
import os
import threading
from typing import List, Tuple

import pytest

from bytescheduler._process import output


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A printer that is fed chunk by chunk; what it wrote is taken from a pipe."""

    def __init__(self, **options: bool) -> None:
        self.clock = Clock()
        self.broken = 0
        self.lost: List[str] = []
        self._read_end, write_end = os.pipe()
        self._write_end = write_end
        self.printer = output.Printer(
            write_end,
            prefixes=options.get("prefixes", True),
            colour=options.get("colour", False),
            on_broken=self._on_broken,
            on_lost=self.lost.append,
            clock=self.clock,
        )

    def _on_broken(self) -> None:
        self.broken += 1

    def lose_reader(self) -> None:
        os.close(self._read_end)
        self._read_end = -1

    def copy(
        self, monkeypatch: pytest.MonkeyPatch, chunks: List[bytes], seconds: float = 0
    ) -> None:
        """Copy `chunks`, each as one read gives it; `seconds` pass before each."""
        left = iter([*chunks, b""])

        def read(descriptor: int, _: int) -> bytes:
            self.clock.now += seconds
            return next(left)

        with monkeypatch.context() as patch:
            patch.setattr(output.os, "read", read)
            patch.setattr(output.os, "close", lambda _: None)
            self.printer.copy(self.printer.prefix("w", 0), -1)

    def close(self) -> bytes:
        os.close(self._write_end)
        if self._read_end < 0:
            return b""
        with os.fdopen(self._read_end, "rb") as reader:
            return reader.read()


TRACEBACK = b"Traceback (most recent call last):\n  File x\nValueError: my bug\n"


def copy_to_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, chunks: List[bytes], waits: bool = False
) -> List[List[bytes]]:
    """Return what a process that writes `chunks` says last; it `waits` before each."""
    last: List[List[bytes]] = []
    copy = bench.printer.copy

    def select(*arguments: object) -> Tuple[List[int], List[int], List[int]]:
        bench.clock.now += float(str(arguments[-1])) if waits else 0.0
        return ([] if waits else [0]), [], []

    monkeypatch.setattr(output.select, "select", select)
    monkeypatch.setattr(bench.printer, "copy", lambda *to: copy(*to, on_last=last.append))
    bench.copy(monkeypatch, chunks)
    return last


def test_the_traceback_at_the_end_of_a_process_is_its_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    last = copy_to_the_end(bench, monkeypatch, [b"step 1\n" + TRACEBACK[:9], TRACEBACK[9:], b"end"])
    assert last == [[*TRACEBACK.splitlines(), b"end"]]
    bench.printer.write_all(b"[w] ", last[0])
    assert bench.close().splitlines() == [
        b"[w] step 1",
        *(b"[w] " + line for line in TRACEBACK.splitlines()),
        b"[w] end",
    ]


def test_a_traceback_of_a_process_that_goes_on_is_printed_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(prefixes=False)
    assert not copy_to_the_end(bench, monkeypatch, [TRACEBACK, b"step 2\n"], waits=True)
    assert bench.close() == TRACEBACK + b"step 2\n"


def test_each_line_gets_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"a\nb", b"c\n\nd"])
    assert bench.close() == b"[w] a\n[w] bc\n[w] \n[w] d\n"


def test_without_prefixes_lines_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(prefixes=False, colour=True)
    bench.copy(monkeypatch, [b"\xff\xfe no text\n"])
    assert bench.close() == b"\xff\xfe no text\n"


def test_colours_end_before_the_text() -> None:
    bench = Bench(colour=True)
    first, second = bench.printer.prefix("w", 0), bench.printer.prefix("w", 1)
    bench.close()
    assert first.endswith(b"[w]\x1b[0m ")
    assert first != second


def test_a_progress_bar_leaves_its_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"\r10%", b"\r50%", b"\r100%\ndone\r\n"])
    assert bench.close() == b"[w] 100%\n[w] done\n"


@pytest.mark.parametrize(
    "log",
    [
        b"[08:34:09] ../src/executor/graph_executor.cc:1991: Subgraph backend MKLDNN is activated.",
        b"2026-11-27 08:34:09.975 INFO worker 0: gradients become ready in another order",
    ],
)
def test_a_line_of_a_log_in_a_progress_bar_is_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, log: bytes
) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"\r 0%|   | 0/9 ", log + b"\n\r 9%", b"\n", b"  " + log + b"\n", log])
    assert bench.close().splitlines() == [
        *(b"[w]  0%|   | 0/9", b"[w] " + log, b"[w]  9%", b"[w] " + log, b"[w] " + log)
    ]


@pytest.mark.parametrize(
    "said", [b"bytescheduler: native back end carries the bytes", b"WARNING:root:mine"]
)
def test_a_line_behind_a_progress_bar_is_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"\r 0%|   | 0/9 ", b"\r 5%|   | 1/9 " + said + b"\n"])
    assert bench.close().splitlines() == [b"[w]  5%|   | 1/9", b"[w] " + said]


def test_text_that_was_not_drawn_before_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"see bytescheduler: it says WARNING:root:mine\n"])
    assert bench.close() == b"[w] see bytescheduler: it says WARNING:root:mine\n"


def test_a_slow_progress_bar_is_shown_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"\r%d%%" % percent for percent in range(10)], seconds=2)
    assert bench.close() == b"[w] 1%\n[w] 4%\n[w] 7%\n[w] 9%\n"


def test_a_progress_bar_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"\r%1000d" % number for number in range(1000)])
    assert bench.close() == b"[w] %1000d\n" % 999


def test_a_long_line_is_cut_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    received: List[bytes] = []
    reader = threading.Thread(target=lambda: received.append(_read_all(bench)))
    reader.start()
    bench.copy(monkeypatch, [b"x" * 60000] * 4)
    os.close(bench._write_end)
    reader.join()
    lines = received[0].splitlines()
    assert all(line.startswith(b"[w] ") for line in lines)
    assert [len(line) - 4 for line in lines] == [65536, 65536, 65536, 240000 - 3 * 65536]


def _read_all(bench: Bench) -> bytes:
    with os.fdopen(bench._read_end, "rb") as reader:
        return reader.read()


def test_a_lost_reader_is_told_once_and_the_writer_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.lose_reader()
    bench.copy(monkeypatch, [b"a\nb\n", b"c\n"])
    bench.close()
    assert bench.broken == 1


def test_lines_that_find_the_disk_full_are_lost_and_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    write, full = os.write, [True, True, False]

    def writing(target: int, content: bytes) -> int:
        if full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "write", writing)
        for line in (b"a", b"b", b"c"):
            bench.printer.write(b"", line)
    assert bench.lost == ["No space left on device"]
    assert bench.broken == 0
    assert bench.close() == b"c\n"


def test_a_muted_printer_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.copy(monkeypatch, [b"before\n"])
    bench.printer.mute()
    bench.copy(monkeypatch, [b"after\n"])
    assert bench.close() == b"[w] before\n"


TRACE = b'Traceback (most recent call last):\n  File "a.py", line 1\n    pause()\n'


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        (b"KeyboardInterrupt\nx\n", b"interrupted\nx\n"),
        (b"KeyboardInterrupt", b"interrupted\n"),
        (b"ValueError: no\n", TRACE + b"ValueError: no\n"),
        (b"", TRACE),
        (TRACE + b"KeyboardInterrupt\n", TRACE + b"interrupted\n"),
    ],
)
def test_a_traceback_of_an_interrupt_is_one_line(
    monkeypatch: pytest.MonkeyPatch, after: bytes, shown: bytes
) -> None:
    bench = Bench(prefixes=False)
    bench.printer.shorten_interrupts()
    bench.copy(monkeypatch, [b"a\n" + TRACE[:40], TRACE[40:] + after])
    assert bench.close() == b"a\n" + shown


def test_a_traceback_is_shown_where_there_was_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(prefixes=False)
    bench.copy(monkeypatch, [TRACE + b"KeyboardInterrupt\n"])
    assert bench.close() == TRACE + b"KeyboardInterrupt\n"

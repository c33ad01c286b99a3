"""A short, bounded measurement of the link between two hosts over plain sockets.

The measuring side (`measure`) opens one connection to the listening side (`Answerer`) for each of
three experiments, and `reads` for one more.  The measuring side begins with one line, the other
responds with one::

    bytescheduler-doctor 1 echo|upload|download|rdma MILLISECONDS BYTES
    ok | no: REASON

MILLISECONDS and BYTES are the limits of the experiment; it ends at the first one.

- echo: every 16 bytes come back.
- upload: the measuring side sends.  The other reads up to the limits, and then says
  ``RECEIVED NANOSECONDS`` in a line.
- download: the listening side sends up to the limits, or until the measuring side hangs up.

The receiving side takes the time, so bytes in the sender's buffers do not count.  Every wait has a
deadline.  Received bytes are counted, or parsed as two numbers, within the bounds below.
"""

import contextlib
import os
import selectors
import socket
import statistics
import struct
import time
from typing import Callable, Mapping, NamedTuple, Optional, Tuple

from bytescheduler._process.where import unmapped

__all__ = [
    "LARGEST_BYTES",
    "Answerer",
    "LinkError",
    "Measurement",
    "begin_experiment",
    "measure",
    "read_line",
    "read_whole",
]

LARGEST_BYTES = 256 << 20  # both ways together
_LONGEST_MS = 10_000  # one way
_HELLO = "bytescheduler-doctor 1"
_LINE_BYTES = 128
_ECHO_BYTES = 16
_ECHOES = 20
_CHUNK_BYTES = 256 << 10
_MOST_REFUSALS = 20  # that are told
_PATIENCE_S = 5.0  # for one line, one echo, a connection
_GO_AWAY = struct.pack("ii", 1, 0)  # SO_LINGER: what is still unsent is dropped


class LinkError(Exception):
    """The measurement did not come about; the message says why."""


class Measurement(NamedTuple):
    """The result of a measurement."""

    round_trip_us: float  # the median
    to_peer_bits_per_s: float
    from_peer_bits_per_s: float
    bytes_moved: int


class _Rate(NamedTuple):
    """The bytes after the first ones, and the time that they took."""

    size_bytes: int
    time_ns: int

    @property
    def bits_per_s(self) -> float:
        if self.size_bytes <= 0 or self.time_ns <= 0:
            raise LinkError("too little arrived to measure anything")
        return self.size_bytes * 8e9 / self.time_ns


def read_line(
    connection: socket.socket, most_bytes: int = _LINE_BYTES, limit_s: Optional[float] = None
) -> str:
    """Return a line of ASCII without its end.  It may take `limit_s`, or else five seconds.

    Raises
    ------
    LinkError
        It is none, it is too long, or it does not come.
    """
    limit_s = _PATIENCE_S if limit_s is None else limit_s
    deadline = time.monotonic() + limit_s
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            byte = connection.recv(1)
        except socket.timeout:
            raise LinkError(f"no line in {limit_s:g} s") from None
        if not byte:
            raise LinkError("hung up in the middle of a line" if line else "hung up")
        line += byte
        if len(line) > most_bytes:
            raise LinkError("what came is no line of this measurement")
    try:
        text = line[:-1].decode("ascii")
    except UnicodeDecodeError:
        raise LinkError("what came is no line of this measurement") from None
    if not text.isprintable():
        raise LinkError("what came is no line of this measurement")
    return text


def read_whole(connection: socket.socket, size_bytes: int, limit_s: float) -> bytes:
    """Return `size_bytes` bytes, or fewer if the other side hung up before.

    Raises
    ------
    OSError
        The connection broke, or they have not all come in `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    data = b""
    while len(data) < size_bytes:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        more = connection.recv(size_bytes - len(data))
        if not more:
            break
        data += more
    return data


def _receive(connection: socket.socket, time_ms: int, most_bytes: int) -> _Rate:
    """Read for `time_ms` from the first bytes on, or up to `most_bytes`, or to the end."""
    connection.settimeout(_PATIENCE_S)
    buffer = bytearray(_CHUNK_BYTES)
    first = connection.recv_into(buffer)
    begin = last = time.monotonic_ns()
    end = begin + time_ms * 1_000_000
    size = 0
    while first and size < most_bytes - first and last < end:
        connection.settimeout(max((end - last) / 1e9, 1e-3))
        try:
            got = connection.recv_into(buffer, min(_CHUNK_BYTES, most_bytes - first - size))
        except socket.timeout:
            break
        if not got:
            break
        size += got
        last = time.monotonic_ns()
    return _Rate(size, last - begin)


# -- the side that is asked --------------------------------------------------------------------


_Answer = Callable[[socket.socket, int, int], None]


def _parse_request(line: str, answers: Mapping[str, _Answer]) -> Tuple[str, int, int]:
    words = line.split(" ")
    if len(words) != 5 or " ".join(words[:2]) != _HELLO:
        raise LinkError(f"want a line such as {_HELLO} echo 1000 1048576")
    experiment, numbers = words[2], words[3:]
    if experiment not in answers:
        *names, last = answers
        raise LinkError(f"want {', '.join(names)} or {last}")
    if not all(text.isdigit() and len(text) < 12 for text in numbers):
        raise LinkError("want milliseconds and bytes as numbers")
    time_ms, size_bytes = int(numbers[0]), int(numbers[1])
    if not 1 <= time_ms <= _LONGEST_MS or not 1 <= size_bytes <= LARGEST_BYTES:
        raise LinkError(f"at most {_LONGEST_MS} ms and {LARGEST_BYTES} bytes")
    return experiment, time_ms, size_bytes


def _answer_echo(connection: socket.socket, time_ms: int, size_bytes: int) -> None:
    deadline = time.monotonic() + time_ms / 1e3
    while size_bytes > 0 and time.monotonic() < deadline:
        data = read_whole(connection, _ECHO_BYTES, _PATIENCE_S)
        if not data:
            return
        connection.sendall(data)
        size_bytes -= len(data)


def _answer_upload(connection: socket.socket, time_ms: int, size_bytes: int) -> None:
    rate = _receive(connection, time_ms, size_bytes)
    connection.settimeout(_PATIENCE_S)
    connection.sendall(f"{rate.size_bytes} {rate.time_ns}\n".encode())
    # Hanging up with bytes unread could take the line back.  The other side drops what it has left.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        _receive(connection, int(_PATIENCE_S * 1e3), size_bytes)


def _answer_download(connection: socket.socket, time_ms: int, size_bytes: int) -> None:
    # A little longer than the other side reads, which begins later.
    deadline = time.monotonic() + time_ms / 1e3 + _PATIENCE_S
    chunk = bytes(_CHUNK_BYTES)
    while size_bytes > 0 and time.monotonic() < deadline:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        size_bytes -= connection.send(chunk[: min(_CHUNK_BYTES, size_bytes)])
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(max(deadline - time.monotonic(), 1e-3))
    connection.recv(1)


_ANSWERS: Mapping[str, _Answer] = {
    "echo": _answer_echo,
    "upload": _answer_upload,
    "download": _answer_download,
}


def _listener(port: int) -> socket.socket:
    """Return a socket that listens on every address, by IPv4 only where there is no IPv6."""
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=4, dualstack_ipv6=True
        )
    except (OSError, ValueError):
        return socket.create_server(("", port), backlog=4)


class Answerer:
    """Answers one host's measurement; confined to one thread.

    Parameters
    ----------
    port : int
        Where to listen, on every address of this host; 0 takes any free one.
    more : mapping of str to callable, optional
        Experiments besides the three, each with its part on this side.

    Raises
    ------
    OSError
        The port cannot be had.
    """

    def __init__(self, port: int, more: Optional[Mapping[str, _Answer]] = None) -> None:
        self._socket = _listener(port)
        self._answers = {**_ANSWERS, **(more or {})}

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def serve(self, wait_s: float, refused: Callable[[str], None]) -> Optional[str]:
        """Answer until one host has measured both ways; blocks.

        Parameters
        ----------
        wait_s : float
            How long to wait for the host.
        refused : callable
            Gets a line for each of the first connections that speak something else.

        Returns
        -------
        str or None
            The address of that host; None if no host came in time.

        Raises
        ------
        OSError
            No connection can be accepted, for lack of descriptors, say.
        """
        deadline = time.monotonic() + wait_s
        uploaded = ""
        told = 0

        def refuse(line: str) -> None:
            nonlocal told
            told += 1
            if told <= _MOST_REFUSALS:
                refused(line)

        while time.monotonic() < deadline:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                connection, peer = self._socket.accept()
            except socket.timeout:
                break
            except ConnectionAbortedError:
                continue
            address = unmapped(str(peer[0]))  # IPv4 on an IPv6 socket
            with connection:
                experiment = self._answer(connection, address, refuse)
            if experiment == "upload":
                uploaded = address
            elif experiment == "download" and uploaded == address:
                return address
        return None

    def _answer(
        self, connection: socket.socket, address: str, refused: Callable[[str], None]
    ) -> str:
        """Return which experiment ran; empty if none did."""
        try:
            experiment, time_ms, size_bytes = _parse_request(read_line(connection), self._answers)
        except (LinkError, OSError) as error:
            with contextlib.suppress(OSError):
                connection.sendall(f"no: {error}\n".encode()[:_LINE_BYTES])
            refused(f"{address}: {error}")
            return ""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_PATIENCE_S)
            connection.sendall(b"ok\n")
            self._answers[experiment](connection, time_ms, size_bytes)
        except LinkError as error:
            refused(f"{address}: {experiment}: {error}")
            return ""
        except OSError as error:
            # The end of a download: the other side has seen enough.
            if experiment != "download" or isinstance(error, socket.timeout):
                refused(f"{address}: {experiment}: {error.strerror or error}")
                return ""
        return experiment


# -- the side that asks ------------------------------------------------------------------------


def begin_experiment(
    address: Tuple[str, int], experiment: str, time_ms: int, size_bytes: int
) -> socket.socket:
    """Return a connection on which the experiment has begun."""
    connection = socket.create_connection(address, _PATIENCE_S)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"{_HELLO} {experiment} {time_ms} {size_bytes}\n".encode())
        answer = read_line(connection)
        if answer != "ok":
            refusal = answer if answer.startswith("no: ") else "what answers is no doctor --listen"
            raise LinkError(refusal)
    except BaseException:
        connection.close()
        raise
    return connection


def _round_trip_us(address: Tuple[str, int]) -> float:
    times_ns = []
    deadline = time.monotonic() + _PATIENCE_S
    with begin_experiment(address, "echo", _LONGEST_MS, _ECHOES * _ECHO_BYTES) as connection:
        for _ in range(_ECHOES):
            token = os.urandom(_ECHO_BYTES)
            begin = time.monotonic_ns()
            connection.sendall(token)
            if read_whole(connection, _ECHO_BYTES, _PATIENCE_S) != token:
                raise LinkError("the echo is not what was sent")
            times_ns.append(time.monotonic_ns() - begin)
            if time.monotonic() > deadline:
                break
    return statistics.median(times_ns) / 1e3


def _parse_report(line: str, time_ms: int, sent_bytes: int) -> _Rate:
    words = line.split(" ")
    if len(words) != 2 or not all(word.isdigit() and len(word) < 20 for word in words):
        raise LinkError("the report is not two numbers")
    rate = _Rate(int(words[0]), int(words[1]))
    if rate.size_bytes > sent_bytes or rate.time_ns > (time_ms + _PATIENCE_S * 1e3) * 1e6:
        raise LinkError("the report says more than was sent")
    return rate


def _upload(address: Tuple[str, int], time_ms: int, size_bytes: int) -> _Rate:
    deadline = time.monotonic() + time_ms / 1e3 + 2 * _PATIENCE_S
    chunk = os.urandom(_CHUNK_BYTES)
    sent = 0
    with begin_experiment(address, "upload", time_ms, size_bytes) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _GO_AWAY)
        connection.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
            while time.monotonic() < deadline:
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if any(events & selectors.EVENT_READ for _, events in ready):
                    return _parse_report(read_line(connection), time_ms, sent)
                if ready:
                    sent += connection.send(chunk[: min(_CHUNK_BYTES, size_bytes - sent)])
                if sent == size_bytes:
                    selector.modify(connection, selectors.EVENT_READ)
    raise LinkError("no report of what arrived")


def _download(address: Tuple[str, int], time_ms: int, size_bytes: int) -> _Rate:
    with begin_experiment(address, "download", time_ms, size_bytes) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _GO_AWAY)
        return _receive(connection, time_ms, size_bytes)


def measure(
    address: Tuple[str, int], *, time_s: float, most_bytes: int = LARGEST_BYTES
) -> Measurement:
    """Measure the link to a host on which an `Answerer` serves; blocks.

    Parameters
    ----------
    address : tuple of str and int
        IPv4 address and port.
    time_s : float
        How long to send, both ways together; at most 20.
    most_bytes : int, optional
        How much to send, both ways together.

    Raises
    ------
    LinkError
        The other side speaks something else, or too little came through.
    OSError
        It cannot be reached, hung up, or did not answer in time.
    """
    time_ms = max(int(time_s * 500), 1)
    one_way_bytes = most_bytes // 2
    round_trip_us = _round_trip_us(address)
    there = _upload(address, time_ms, one_way_bytes)
    back = _download(address, time_ms, one_way_bytes)
    return Measurement(
        round_trip_us, there.bits_per_s, back.bits_per_s, there.size_bytes + back.size_bytes
    )

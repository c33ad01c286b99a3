"""The time of READs by RDMA between two hosts, beside the measurement of a link.

It is one more experiment of `link`, called ``rdma``.  After its ``ok`` the measuring side sends the
offer of its probe in a line.  The listening side responds with a line::

    ok OFFER | no: REASON

Then the measuring side READs, and hangs up when it has seen enough.  The listening side lends a
block of 256 KiB meanwhile; no host can READ more, and none can write.
"""

import socket
from typing import Callable, List, NamedTuple, Protocol, Tuple

from bytescheduler._doctor.link import LinkError, begin_experiment, read_line, read_whole
from bytescheduler._process.where import unmapped
from bytescheduler.errors import Error

__all__ = ["EXPERIMENT", "OTHER_HOST", "Probe", "Reads", "answer_with", "measure_reads"]

EXPERIMENT = "rdma"
OTHER_HOST = "the other host says: "  # begins a reason that is the other host's
_SIZES = (4, 256 << 10)  # a READ's own time; the rate of a link in a READ
_MOST_READS = 200
_LIMIT_S = 5.0  # for the READs of a size
_OPEN_S = 20.0  # for the other host to open its device
_OFFER_BYTES = 1024


class Probe(Protocol):
    """An end of the link, such as `bytescheduler._native.RdmaProbe`."""

    @property
    def offer(self) -> str:
        """The line for the other end."""

    def join(self, offer: str) -> None:
        """Connect to the end with this offer."""

    def read(self, size_bytes: int, most_reads: int, limit_s: float) -> Tuple[int, float]:
        """READ; return how often, and the median of the seconds of a READ."""


class Reads(NamedTuple):
    """READs of the same size, each after the last."""

    size_bytes: int
    reads: int
    median_us: float

    @property
    def bits_per_s(self) -> float:
        """The rate of READs, each after the last."""
        return self.size_bytes * 8e6 / self.median_us


# Opens a probe on the device by which the host with this address is reached.
OpenProbe = Callable[[str], Probe]


def answer_with(open_probe: OpenProbe) -> Callable[[socket.socket, int, int], None]:
    """Return the listening side's part of the experiment."""

    def answer(connection: socket.socket, time_ms: int, size_bytes: int) -> None:
        del time_ms, size_bytes  # the probe has fixed values
        offer = read_line(connection, _OFFER_BYTES)  # its sender has opened its own
        try:
            probe = open_probe(unmapped(str(connection.getpeername()[0])))
            probe.join(offer)
        except Error as error:
            refusal = f"no: {error}".encode("ascii", "replace")
            connection.sendall(refusal[: _OFFER_BYTES - 1] + b"\n")
            raise LinkError(str(error)) from None
        connection.sendall(f"ok {probe.offer}\n".encode())
        # A READ needs nothing of this process but the block.
        read_whole(connection, 1, (len(_SIZES) + 1) * 2 * _LIMIT_S)

    return answer


def measure_reads(address: Tuple[str, int], open_probe: OpenProbe) -> List[Reads]:
    """Measure READs from a host on which an `Answerer` serves; blocks.

    Parameters
    ----------
    address : tuple of str and int
        IPv4 address and port.
    open_probe : callable
        Opens the probe of this side.

    Raises
    ------
    LinkError
        One host has no RDMA, a READ failed, or the other host hung up or did not answer in time.
    OSError
        The host cannot be reached.
    """
    try:
        probe = open_probe(address[0])
        with begin_experiment(address, EXPERIMENT, int(_LIMIT_S * 1e3), max(_SIZES)) as connection:
            connection.sendall(f"{probe.offer}\n".encode())
            line = read_line(connection, _OFFER_BYTES, _OPEN_S)
            if not line.startswith("ok "):
                raise LinkError(OTHER_HOST + (line[4:] if line.startswith("no: ") else line))
            probe.join(line[3:])
            measured = [(size, *probe.read(size, _MOST_READS, _LIMIT_S)) for size in _SIZES]
    except Error as error:
        raise LinkError(str(error)) from None
    return [Reads(size, reads, median_s * 1e6) for size, reads, median_s in measured]

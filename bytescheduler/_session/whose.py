"""The kind of a scheduler node, ours or stock, by its side of the handshake.

Both speak ZMTP 3.0.  Ours gives an identity of its own in the READY command, or asks for
authentication in a job with a secret.  A stock node knows all that is sent, and no
message is sent at all.  (3rdparty/ps-lite/PROTOCOL.md, "Whose node it is")
"""

import enum
import socket
import time
from typing import Callable, Union

from bytescheduler._process.reach import reach
from bytescheduler._process.where import at
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Timeout

__all__ = ["Whose", "whose_scheduler"]

_GREETING = b"\xff" + b"\0" * 8 + b"\x7f" + b"\3\0" + b"NULL".ljust(20, b"\0") + b"\0" * 32
_GREETING_BYTES = 64
_VERSION_ENDS = 12
_MECHANISM = slice(12, 32)
_COMMAND = 4
_OURS = b"bytescheduler"  # kOurIdentity
_TRY_EVERY_S = 0.1
_SAY_EVERY_S = 5.0
# A node that has accepted a connection introduces itself at once, unless it is stopped.
_ANSWER_S = 2.0


class Whose(enum.Enum):
    """The kinds of scheduler nodes."""

    OURS = "ours"
    STOCK = "stock"


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def _command(body: bytes) -> bytes:
    return bytes([_COMMAND, len(body)]) + body


_READY = _command(b"\5READY" + _property(b"Socket-Type", b"DEALER") + _property(b"Identity", b""))


def _read(ours: socket.socket, size: int) -> bytes:
    """Return `size` bytes; OSError if they do not come."""
    got = b""
    while len(got) < size:
        more = ours.recv(size - len(got))
        if not more:
            raise OSError("it hung up")
        got += more
    return got


def _ask(ours: socket.socket, *, has_secret: bool) -> Whose:
    # Its mechanism comes in return for our version; a wrong guess of ours would be an error there.
    ours.sendall(_GREETING[:_VERSION_ENDS])
    greeting = _read(ours, _GREETING_BYTES)
    if greeting[0] != 0xFF or not greeting[9] & 1:
        raise OSError("it speaks no ZMTP")
    if greeting[_MECHANISM].rstrip(b"\0") != b"NULL":  # a stock node knows no other mechanism
        if not has_secret:
            raise ConfigError(
                "the job has a secret, and BYTESCHEDULER_SECRET_FILE is not set here: set it to a "
                "file with the same secret, as on the scheduler node"
            )
        return Whose.OURS
    ours.sendall(_GREETING[_VERSION_ENDS:] + _READY)
    flags, size = _read(ours, 2)
    if not flags & _COMMAND or flags & 2:
        raise OSError("it introduces itself in another way")
    metadata = _read(ours, size)
    return Whose.OURS if _property(b"Identity", _OURS) in metadata else Whose.STOCK


def _try(settings: Settings) -> Union[Whose, str]:
    """Ask at each address; return the kind of the node, or why it is unknown.  Blocks."""
    whose, failure = reach(
        settings.root_host,
        settings.root_port,
        lambda ours: _ask(ours, has_secret=bool(settings.secret_file)),
        uses_files=settings.uses_files,
        limit_s=_ANSWER_S,
    )
    return failure if whose is None else whose


def whose_scheduler(settings: Settings, say: Callable[[str], None]) -> Whose:
    """Return the kind of the job's scheduler node.  Blocks until it can be reached.

    Parameters
    ----------
    settings : Settings
        Where it is, and how long to try.
    say : callable
        Prints a line about the wait.

    Raises
    ------
    ConfigError
        The job has a secret, and this process has none.
    Timeout
        It cannot be reached within BYTESCHEDULER_RENDEZVOUS_TIMEOUT.
    """
    root = at(settings.root_host, settings.root_port)
    deadline = time.monotonic() + settings.rendezvous_s
    next_word = time.monotonic() + _SAY_EVERY_S
    while True:
        whose = _try(settings)
        if isinstance(whose, Whose):
            return whose
        now = time.monotonic()
        if now >= deadline:
            raise Timeout(
                f"no response from the scheduler node at {root} in {settings.rendezvous_s:g} s "
                f"(BYTESCHEDULER_RENDEZVOUS_TIMEOUT; latest attempt: {whose})",
                2,
            )
        if now >= next_word:
            next_word = now + _SAY_EVERY_S
            say(f"waiting for the scheduler node at {root} (latest attempt: {whose})")
        time.sleep(_TRY_EVERY_S)

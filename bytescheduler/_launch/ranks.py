"""Addresses of this host that let a process have a rank that is known before it starts."""

import socket

from bytescheduler._launch.launcher import LOOPBACK, Place

__all__ = ["place_of"]

# Numbers of this many digits end an address: a longer text is not a greater one.
_ONE_DIGIT = range(1, 10)
_THREE_DIGITS = range(100, 255)


def place_of(rank: int, count: int) -> Place:
    """Return where the process that is to have `rank` among `count` of its role runs.

    A scheduler node, ours or MXNet's own, gives ranks in the descending order of the addresses'
    texts.  Every address that begins with 127 is one of this host; where the system lends only
    the usual one, the ranks are in no order.
    """
    behind = count - 1 - rank
    if count <= len(_ONE_DIGIT):
        address = f"127.0.0.{_ONE_DIGIT[behind]}"
    elif count <= len(_THREE_DIGITS):
        address = f"127.0.0.{_THREE_DIGITS[behind]}"
    else:
        high, low = divmod(behind, len(_THREE_DIGITS))
        address = f"127.0.{_THREE_DIGITS[high]}.{_THREE_DIGITS[low]}"
    try:
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError:
        return LOOPBACK
    return Place(address)

"""Before a stock store is made: the node shows its own address, and meets the others by IPv4.

A framework's own store shows the others the first network interface of the host, which may be that
of a container bridge.  MXNet ends a process whose dist store should connect by IPv6.
"""

import contextlib
import ipaddress
import os
import socket
from typing import Iterator

from bytescheduler._native import about_host
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError

__all__ = ["meets_by_ipv6", "own_address_shown"]

_SHOWN = "DMLC_NODE_HOST"


@contextlib.contextmanager
def own_address_shown(settings: Settings) -> Iterator[None]:
    """Let a stock store that is made meanwhile show the address that ours would show.

    Raises
    ------
    ConfigError
        There is none.
    """
    if settings.uses_files:
        yield
        return
    address = next(fact for fact in about_host() if fact.what == "address")
    if not address.name:
        raise ConfigError(address.value)
    earlier = os.environ.get(_SHOWN)
    os.environ[_SHOWN] = address.name
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[_SHOWN]
        else:
            os.environ[_SHOWN] = earlier


def meets_by_ipv6(settings: Settings) -> bool:
    """Return whether the scheduler node has IPv6 addresses only.  Blocks for a look-up."""
    host = settings.root_host
    if not host or settings.uses_files:
        return False
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).version == 6
    try:
        address_rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(row[0] == socket.AF_INET6 for row in address_rows)

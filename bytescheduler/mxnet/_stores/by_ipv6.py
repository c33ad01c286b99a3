"""Jobs whose nodes meet by IPv6, which MXNet's own stores do not know.

MXNet ends a process whose dist store should connect by IPv6.
"""

import contextlib
import ipaddress
import socket

from bytescheduler._settings import Settings

__all__ = ["meets_by_ipv6"]


def meets_by_ipv6(settings: Settings) -> bool:
    """Return whether the scheduler node has IPv6 addresses only.  Blocks for a look-up."""
    host = settings.root_host
    if not host or settings.uses_files:
        return False
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).version == 6
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(row[0] == socket.AF_INET6 for row in found)

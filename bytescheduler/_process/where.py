"""Addresses: their text, and whether they lead to this host alone."""

import ipaddress
import socket
from typing import List

__all__ = ["addresses_of", "at", "bare", "is_loopback", "is_own", "unmapped"]


def bare(host: str) -> str:
    """Return an IPv6 host without the brackets that some users write around it."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def at(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unmapped(host: str) -> str:
    """Return an IPv4 address without the prefix that a socket for IPv6 gives it."""
    prefix = "::ffff:"
    return host[len(prefix) :] if host.startswith(prefix) else host


def addresses_of(host: str) -> List[str]:
    """Return the addresses of a name, in the system's order; none if it has none.  Blocks."""
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for _, _, _, _, address in rows]


def is_loopback(address: str) -> bool:
    """Return whether no other host reaches the address, which is one in numbers."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def is_own(address: str) -> bool:
    """Return whether this host can listen at the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except (OSError, UnicodeError):
        return False
    return True

"""Addresses with ports, as one text."""

__all__ = ["at", "bare", "unmapped"]


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

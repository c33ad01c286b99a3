"""Connections to a node that may have several addresses, and why none of them comes up."""

import errno
import socket
from typing import Callable, List, Optional, Tuple, TypeVar, Union

from bytescheduler._process.where import at

__all__ = ["reach"]

_T = TypeVar("_T")
# The family of its socket, its address, and the address for messages.
_Place = Tuple[int, Union[str, Tuple[object, ...]], str]


def _places(host: str, port: int, *, uses_files: bool) -> List[_Place]:
    """Return where the node may listen; OSError if the name has no address.  Blocks."""
    if uses_files:
        path = f"/tmp/{port}"
        return [(socket.AF_UNIX, path, path)]
    try:
        address_rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is empty or too long
        raise OSError(errno.EINVAL, "this is no host name") from None
    return [
        (family, address, at(str(address[0]), port)) for family, _, _, _, address in address_rows
    ]


def reach(
    host: str,
    port: int,
    use: Callable[[socket.socket], _T],
    *,
    uses_files: bool,
    limit_s: float,
) -> Tuple[Optional[_T], str]:
    """Connect to each address in turn until `use` returns.  Blocks.

    Parameters
    ----------
    host, port : str, int
        The node's.
    use : callable
        Gets the connection, which is closed behind it; OSError goes on to the next address.
    uses_files : bool
        The nodes of the job meet at files of this host.
    limit_s : float
        Seconds for each connection, and for each wait on it.

    Returns
    -------
    tuple
        What `use` returned and nothing, or None and what each attempt came to.
    """
    try:
        places = _places(host, port, uses_files=uses_files)
    except OSError as error:
        return None, f"the name {host} cannot be resolved: {error.strerror or error}"
    tried = []
    for family, address, shown_address in places:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as ours:
                ours.settimeout(limit_s)
                ours.connect(address)
                return use(ours), ""
        except socket.timeout:
            tried.append(f"{shown_address} does not answer")
        except OSError as error:
            tried.append(f"{shown_address}: {error.strerror or error}")
    return None, ", ".join(tried)

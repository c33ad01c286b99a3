"""Ports of this host that stay free until a node of a job listens there."""

import socket
from typing import List

__all__ = ["Ports"]


class Ports:
    """Finds free ports and reserves them until `close`.

    A socket that never listens is bound to each of them.  The system then gives the port to no
    process that asks for any port, and to no connection.  A process that names the port can still
    listen there if it sets SO_REUSEADDR, as our nodes and MXNet's do.
    """

    def __init__(self) -> None:
        self._sockets: List[socket.socket] = []

    def free(self) -> int:
        """Return another port, which no process uses on any address of this host."""
        holder = socket.socket()
        self._sockets.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        return int(holder.getsockname()[1])

    def close(self) -> None:
        """Give all ports back."""
        for holder in self._sockets:
            holder.close()
        self._sockets.clear()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Ports of this host that stay free until a node of a job listens there."""

import errno
import socket
from typing import List

__all__ = ["Ports"]

TRIES = 100
LAST_PORT = 65535


class Ports:
    """Finds free ports and reserves them until `close`.

    A socket that never listens is bound to each of them.  The system then gives the port to no
    process that asks for any port, and to no connection.  A process that names the port can still
    listen there if it sets SO_REUSEADDR, as the nodes of jobs do.
    """

    def __init__(self) -> None:
        self._sockets: List[socket.socket] = []

    def free(self, following: int = 0) -> int:
        """Return another port, which no process uses on any address of this host.

        The `following` ports after it are reserved too.

        Raises
        ------
        OSError
            The system gives no port, or no such row was found.
        """
        for _ in range(TRIES):
            first = self._hold(0)
            if first + following > LAST_PORT:
                continue
            try:
                for port in range(first + 1, first + 1 + following):
                    self._hold(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue  # the sockets stay, so that no port is tried twice
            return first
        raise OSError(
            errno.EADDRINUSE, f"found no {following + 1} free ports in a row in {TRIES} tries"
        )

    def _hold(self, port: int) -> int:
        holder = socket.socket()
        self._sockets.append(holder)
        holder.bind(("", port))
        # Not before: the system would then let two of these share a port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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

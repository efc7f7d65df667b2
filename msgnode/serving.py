"""What a worker needs of its server: the interface Daphne and uvicorn are used through."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

BACKLOG = 4096


class CannotListen(Exception):
    """The port is not to be had; says why."""


def listening_socket(host: str, port: int, is_shared: bool) -> socket.socket:
    """A socket that listens; if shared, other workers may listen there as well, and each gets
    connections of its own. Raises CannotListen."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        raise CannotListen(str(error)) from error
    return listening


class Serving(Protocol):
    """A server with its event loop, made before the node is started."""

    loop: asyncio.AbstractEventLoop

    def run(self) -> None:
        """Listen and serve until `stop`. Raises CannotListen."""
        ...

    def stop_listening(self) -> None:
        """Take no new connections; those there are go on."""
        ...

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, at most so long."""
        ...

    def stop(self) -> None:
        """End `run`."""
        ...

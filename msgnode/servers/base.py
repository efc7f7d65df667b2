"""What a worker needs of its server: the interface Daphne and uvicorn are used through."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol


class Serving(Protocol):
    """A server with its event loop, made before the node is started."""

    loop: asyncio.AbstractEventLoop

    def run(self, listening: socket.socket) -> None:
        """Serve who connects to a socket that listens, until `stop`."""
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

"""The interface of a server, implemented for Daphne and uvicorn."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol


class Serving(Protocol):
    """A server with its event loop, created before the node is started."""

    loop: asyncio.AbstractEventLoop

    def run(self, listening: socket.socket) -> None:
        """Serve connections to a listening socket until `stop`."""
        ...

    def stop_listening(self) -> None:
        """Accept no new connections; open ones continue."""
        ...

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, for at most so many seconds."""
        ...

    def stop(self) -> None:
        """End `run`."""
        ...

"""What the small servers for the tests of the gateway share: one connection, and waiting."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tests.ports import free_port

SECONDS = 10.0


class FakeServer:
    """Serves the gateway on a port of its own; subclasses `_serve` it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.opened = 0
        self._changed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self, tls: ssl.SSLContext | None = None) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=tls)
        return self

    async def stop(self) -> None:
        """End as a process that is killed does."""
        if self._server is not None:
            self._server.close()
        self.cut()

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def until(self, condition: Callable[[], Any]) -> Any:
        """What a condition gives, once it gives something."""
        async with asyncio.timeout(SECONDS):
            while not (found := condition()):
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._changed.wait()
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

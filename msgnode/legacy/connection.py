"""The connection of a gateway to the server of its network: TCP or TLS, whatever is spoken on it.

What is sent within one turn of the loop is written together: a write costs more than a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLCertVerificationError, SSLContext

from .network import Lost

OPEN_SECONDS, CLOSE_SECONDS = 10.0, 0.5
UNSENT_BYTES = 256 * 1024
"""While so much waits to be sent, the server is slower than we are."""
_READ_BYTES = 64 * 1024


class Connection:
    """One connection; what is sent on one that has ended is lost.

    Attributes:
        here: our end of it, as host and port.
        on_drained: called when the server reads again after it was too slow.
    """

    def __init__(self) -> None:
        self.here = ""
        self.on_drained: Callable[[], None] = lambda: None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unsent = bytearray()
        self._draining: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether what is sent may arrive."""
        return self._writer is not None and not self._writer.transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the server reads more slowly than we write, or no more at all."""
        if self._writer is None or not self.is_open:
            return True
        waiting = self._writer.transport.get_write_buffer_size()
        return waiting + len(self._unsent) > UNSENT_BYTES

    @asynccontextmanager
    async def opened(
        self, host: str, port: int, context: SSLContext | None = None
    ) -> AsyncIterator[None]:
        """Connect; what is done with it has to end within ten seconds, too. Raises Lost."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context)
                self._writer.transport.set_write_buffer_limits(UNSENT_BYTES, UNSENT_BYTES // 2)
                local, number = self._writer.get_extra_info("sockname")[:2]
                self.here = f"[{local}]:{number}" if ":" in local else f"{local}:{number}"
                yield
        except TimeoutError:
            raise Lost(f"{host}:{port} does not answer") from None
        except SSLCertVerificationError as error:
            raise Lost(f"{host}:{port}: its certificate: {error.verify_message}") from None
        except OSError as error:
            raise Lost(f"{host}:{port}: {error.strerror or error}") from None

    async def read(self) -> bytes:
        """The next piece. Raises Lost when the connection has ended."""
        try:
            data = await self._reader.read(_READ_BYTES) if self._reader is not None else b""
        except OSError as error:
            raise Lost(f"the connection broke: {error.strerror or error}") from None
        if not data:
            raise Lost("the server has closed the connection")
        return data

    def send(self, data: bytes) -> None:
        """Send some bytes, at the end of this turn of the loop."""
        if data and self.is_open:
            if not self._unsent:
                asyncio.get_running_loop().call_soon(self._write)
            self._unsent += data

    def _write(self) -> None:
        was_full, data = self.is_full, bytes(self._unsent)
        self._unsent.clear()
        if not data or self._writer is None or not self.is_open:
            return
        self._writer.write(data)
        if not self.is_full:
            if was_full:
                self.on_drained()
        elif self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain(self._writer))

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            # It may be full again by the time that this task has its turn.
            while writer.transport.get_write_buffer_size() > UNSENT_BYTES:
                await writer.drain()
        self.on_drained()

    async def close(self, farewell: bytes = b"") -> None:
        """End the connection, with a last word."""
        self.send(farewell)
        self._write()
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError, RuntimeError, TimeoutError):  # it may be closed from there
                writer.close()
                async with asyncio.timeout(CLOSE_SECONDS):
                    await writer.wait_closed()
            writer.transport.abort()

    def abort(self) -> None:
        """End the connection at once; what reads it is told."""
        if self._writer is not None:
            self._writer.transport.abort()

"""The one connection of a gateway to its outbound proxy: TCP, TLS or WebSocket (RFC 7118).

A reliable transport leaves out what SIP does about loss: the proxy repeats, where it speaks UDP.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.uri import parse_uri

from .network import Lost
from .sip_messages import MAX_BODY, MAX_HEAD, Framer, Incoming, parsed

OPEN_SECONDS, CLOSE_SECONDS = 10.0, 0.5
UNSENT_BYTES = 256 * 1024
"""While so much waits in the socket, the proxy is slower than we are."""
_READ_BYTES = 64 * 1024


class SipFlow:
    """One connection.

    Args:
        transport: tcp, tls, ws or wss.
        on_message: called with each message that comes.
    """

    def __init__(self, transport: str, on_message: Callable[[Incoming], None]) -> None:
        self.transport = transport
        self.here = ""
        self._on_message = on_message
        self._framer = Framer(on_message, lambda: self._write(b"\r\n"))
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._socket: ClientProtocol | None = None
        self._handshake: object = None

    @property
    def via(self) -> str:
        """The name of the transport in a Via."""
        return self.transport.upper()

    @property
    def parameter(self) -> str:
        """The parameter of a contact with the transport: TLS and WSS are said otherwise."""
        return "ws" if self.transport == "wss" else self.transport

    @property
    def is_full(self) -> bool:
        """Whether the proxy reads more slowly than we write, or no more at all."""
        if self._writer is None or self._writer.transport.is_closing():
            return True
        return self._writer.transport.get_write_buffer_size() > UNSENT_BYTES

    async def open(self, host: str, port: int) -> None:
        """Connect, within ten seconds. Raises Lost."""
        context = ssl.create_default_context() if self.transport in ("tls", "wss") else None
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context)
                local, number = self._writer.get_extra_info("sockname")[:2]
                self.here = f"[{local}]:{number}" if ":" in local else f"{local}:{number}"
                if self.transport in ("ws", "wss"):
                    await self._upgrade(host, port)
        except TimeoutError:
            raise Lost(f"{host}:{port} does not answer") from None
        except ssl.SSLCertVerificationError as error:
            raise Lost(f"{host}:{port}: its certificate: {error.verify_message}") from None
        except OSError as error:
            raise Lost(f"{host}:{port}: {error.strerror or error}") from None

    async def _upgrade(self, host: str, port: int) -> None:
        """Make a WebSocket of the connection."""
        name = f"[{host}]" if ":" in host else host
        place = parse_uri(f"{self.transport}://{name}:{port}/")
        size = MAX_HEAD + MAX_BODY
        self._socket = ClientProtocol(place, subprotocols=["sip"], max_size=size)  # type: ignore[list-item]
        self._socket.send_request(self._socket.connect())
        self._flush()
        while self._handshake is None:
            await self.read()
        if self._socket.subprotocol != "sip":
            raise Lost(f"{host}:{port} does not speak SIP over this WebSocket")

    async def read(self) -> None:
        """Read and take one piece. Raises Lost when the connection has ended."""
        try:
            data = await self._reader.read(_READ_BYTES) if self._reader is not None else b""
        except OSError as error:
            raise Lost(f"the connection broke: {error.strerror or error}") from None
        if not data:
            raise Lost("the server has closed the connection")
        if self._socket is None:
            self._framer.feed(data)
        else:
            self._take_frames(self._socket, data)

    def _take_frames(self, socket: ClientProtocol, data: bytes) -> None:
        socket.receive_data(data)
        try:
            events = socket.events_received()
        finally:
            self._flush()
        if (error := socket.handshake_exc) is not None:
            raise Lost(f"the server refuses the WebSocket: {error}") from None
        for event in events:
            if self._handshake is None:
                self._handshake = event
            elif getattr(event, "opcode", None) in (Opcode.TEXT, Opcode.BINARY):
                if not event.fin:  # type: ignore[union-attr]
                    raise Lost("the server sent a message in pieces")
                if message := bytes(event.data).lstrip(b"\r\n"):  # type: ignore[union-attr]
                    self._on_message(parsed(message))
        if socket.close_expected():
            raise Lost("the server has closed the WebSocket")

    def send(self, message: bytes) -> None:
        """Send a message; on a connection that has ended it is lost."""
        if self._socket is None:
            self._write(message)
        elif self._writer is not None:
            self._socket.send_text(message)
            self._flush()

    def _flush(self) -> None:
        if self._socket is not None:
            self._write(b"".join(self._socket.data_to_send()))

    def _write(self, data: bytes) -> None:
        if data and self._writer is not None and not self._writer.transport.is_closing():
            self._writer.write(data)

    async def close(self) -> None:
        """End the connection."""
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

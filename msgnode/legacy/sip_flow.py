"""The one connection of a gateway to its outbound proxy: TCP, TLS or WebSocket (RFC 7118).

A reliable transport leaves out what SIP does about loss: the proxy repeats, where it speaks UDP.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.uri import parse_uri

from .connection import Connection
from .network import Lost
from .sip_messages import MAX_BODY, MAX_HEAD, Framer, Incoming, parsed


class SipFlow(Connection):
    """One connection.

    Args:
        transport: tcp, tls, ws or wss.
        on_message: called with each message that comes.
        on_drained: called when the proxy reads again after it was too slow.

    Attributes:
        via: the name of the transport in a Via.
        parameter: the parameter of a contact with it, which has no name for wss.
    """

    def __init__(
        self,
        transport: str,
        on_message: Callable[[Incoming], None],
        on_drained: Callable[[], None],
    ) -> None:
        super().__init__()
        self.via = transport.upper()
        self.parameter = "ws" if transport == "wss" else transport
        self.on_drained = on_drained
        self._transport = transport
        self._on_message = on_message
        self._framer = Framer(on_message, partial(self.send, b"\r\n"))
        self._socket: ClientProtocol | None = None
        self._handshake: object = None

    async def open(self, host: str, port: int) -> None:
        """Connect, within ten seconds. Raises Lost."""
        context = ssl.create_default_context() if self._transport in ("tls", "wss") else None
        async with self.opened(host, port, context):
            if self._transport in ("ws", "wss"):
                await self._upgrade(host, port)

    async def _upgrade(self, host: str, port: int) -> None:
        """Make a WebSocket of the connection."""
        name = f"[{host}]" if ":" in host else host
        place = parse_uri(f"{self._transport}://{name}:{port}/")
        size = MAX_HEAD + MAX_BODY
        self._socket = ClientProtocol(place, subprotocols=["sip"], max_size=size)  # type: ignore[list-item]
        self._socket.send_request(self._socket.connect())
        self._flush(self._socket)
        while self._handshake is None:
            await self.take()
        if self._socket.subprotocol != "sip":
            raise Lost(f"{host}:{port} does not speak SIP over this WebSocket")

    async def take(self) -> None:
        """Read and take one piece. Raises Lost when the connection has ended."""
        data = await self.read()
        if self._socket is None:
            self._framer.feed(data)
        else:
            self._take_frames(self._socket, data)

    def _take_frames(self, socket: ClientProtocol, data: bytes) -> None:
        socket.receive_data(data)
        try:
            events = socket.events_received()
        finally:
            self._flush(socket)
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

    def write(self, message: bytes) -> None:
        """Send a message; on a connection that has ended it is lost."""
        if self._socket is None:
            self.send(message)
        elif self.is_open:
            self._socket.send_text(message)
            self._flush(self._socket)

    def _flush(self, socket: ClientProtocol) -> None:
        self.send(b"".join(socket.data_to_send()))

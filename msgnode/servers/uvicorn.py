"""uvicorn with what a message node needs of its server: the second choice beside Daphne.

- A Link in the scope (`extensions["msgnode.link"]`), as on Daphne: plain text frames are cut out of
  a read in one loop and go to the consumer without a queue; those of one turn leave together.
- A frame over the limit ends the socket with 4413, a fault of the protocol with 1002 or 1007; a
  connection that asks for nothing is dropped.
- Stopping is ours: uvicorn's own closes sockets with 1012 before anybody is told why.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import uvloop
from uvicorn import Config, Server
from uvicorn.lifespan.off import LifespanOff
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import PayloadTooBig
from websockets.frames import Close, Frame, Opcode

from msgnode.servers.socket_link import (
    CLOSE_PATIENCE,
    FAILURE_PATIENCE,
    FailedClient,
    SocketLink,
)
from msgnode.servers.text_frames import frame_size, is_overlong, is_utf8, whole_texts
from msgnode.sessions.rules import CloseCode

REQUEST_PATIENCE = 10.0
"""Seconds a new connection has to begin a request."""


class UvicornLink(SocketLink):
    """A link over one of uvicorn's protocols, which tell it when the buffer is full or empty."""

    def __init__(self, protocol: NodeWebSocketProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._transport = protocol.transport

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        self._protocol.begin(receiver)
        await self._closed.wait()

    def _send(self, data: bytes) -> None:
        if self._is_open and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def unsent_bytes(self) -> int:
        return int(self._transport.get_write_buffer_size())

    def _begin_close(self, code: int, reason: str) -> None:
        if not self._is_open:
            return
        was_paused = self.is_paused
        self._protocol.send_close(code, reason)
        self.closing()
        self.resume_reading()  # or the peer's half of the closing handshake is never read
        if was_paused:
            # Nobody reads what is in the buffer, so the closing frame behind it is never sent.
            asyncio.get_running_loop().call_later(CLOSE_PATIENCE, self._drop)

    def _drop(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


class NodeWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with a Link.

    `websockets` is given nothing but whole frames, except for one that is too long to be kept here:
    `_owed` bytes of that are still to come.
    """

    receiver: Callable[[bytes], None] | None = None
    link: UvicornLink | None = None
    _rest = b""
    _owed = 0
    _is_lost = False
    _failed: FailedClient | None = None

    async def run_asgi(self) -> None:
        self.link = UvicornLink(self)
        if self._is_lost:  # before the application began, which would wait for ever
            self.link.closed()
        extensions: Any = self.scope["extensions"]
        extensions["msgnode.link"] = self.link
        await super().run_asgi()

    def begin(self, receiver: Callable[[bytes], None]) -> None:
        """Give every frame to the receiver, first those that have come."""
        self.receiver = receiver
        while not self.queue.empty():
            event: Any = self.queue.get_nowait()
            if event["type"] == "websocket.receive":
                text = event.get("text")
                receiver(text.encode() if text is not None else event["bytes"])
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._failed is not None:
            if not self._failed.read(len(data)):
                self.transport.abort()
            return
        if not self.handshake_initiated:  # the request of the upgrade
            super().data_received(data)
            return
        if self.link is not None and self.link.awaiting:
            self.link.heard()
        if self._owed:
            owed, data = data[: self._owed], data[self._owed :]
            self._owed -= len(owed)
            super().data_received(owed)
        receiver = self.receiver
        if self._rest:
            data = self._rest + data
        at = 0
        while at < len(data) and self._failed is None:
            if not self.frames and not self.close_sent and receiver is not None:
                texts, end, _ = whole_texts(data[at:] if at else data, self.config.ws_max_size)
                at += end
                for text in texts:
                    receiver(text)
            size = frame_size(data, at)
            available = len(data) - at
            if size is None:
                break
            if is_overlong(data, at):
                self._fail(1002, "a length is not in its shortest form")
                break
            if available < size <= _KEPT:
                break
            self._owed = max(0, size - available)
            super().data_received(data[at : at + size])
            at += size
        self._rest = data[at:]

    def send_receive_event_to_app(self) -> None:
        data = b"".join(self.frames)
        if self.curr_msg_data_type == "text" and not is_utf8(data):
            self.frames = []
            self._fail(1007, "a text is not UTF-8")
        elif self.receiver is None:
            super().send_receive_event_to_app()
        else:
            self.frames = []
            if not self.close_sent:
                self.receiver(data)

    def send_close(self, code: int, reason: str) -> None:
        """Begin the closing handshake; what comes meanwhile is thrown away."""
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        if self.link is not None:
            self.link.closing()

    def handle_close(self, event: Frame) -> None:
        if self.link is not None:
            self.link.uncork()
            self.link.closing()
        super().handle_close(event)

    def handle_parser_exception(self) -> None:
        failure = self.conn.close_sent
        if self.link is None or failure is None:
            super().handle_parser_exception()
            return
        self.conn.data_to_send()  # which closes without waiting for the client to read it
        if isinstance(self.conn.parser_exc, PayloadTooBig):
            limit = self.config.ws_max_size
            self._fail(CloseCode.TOO_LARGE, f"a frame may have {limit} bytes")
        else:
            self._fail(failure.code, failure.reason)

    def _fail(self, code: int, reason: str) -> None:
        """Close with a code for what the client did wrong; nothing more of it is heard."""
        self._failed = FailedClient()
        if self.close_sent or self.transport.is_closing():
            return
        self.stop_keepalive()
        if self.link is not None:
            self.link.uncork()
            self.link.closing()
            self.link.resume_reading()
        close = Frame(Opcode.CLOSE, Close(code, reason).serialize())
        self.transport.write(close.serialize(mask=False))
        self.transport.write_eof()
        self.close_sent = True
        self._wait_for_the_end()

    def _wait_for_the_end(self) -> None:
        self.close_timer = self.loop.call_later(FAILURE_PATIENCE, self._end_failed)

    def _end_failed(self) -> None:
        if self._failed is not None and self._failed.is_waited_for():
            self._wait_for_the_end()
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.link is not None:
            self.link.full()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.link is not None:
            self.link.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        super().connection_lost(exc)
        link, self.link, self.receiver = self.link, None, None  # a ring nobody would find soon
        if link is not None:
            link.closed()


_KEPT = 64 * 1024
"""Longest frame whose pieces are put together here (text_frames says why)."""


class NodeHttpProtocol(H11Protocol):
    """uvicorn's HTTP protocol; a connection that does not begin a request in time is dropped."""

    patience = REQUEST_PATIENCE
    _idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._idle = self.loop.call_later(self.patience, self._drop)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        super().connection_lost(exc)

    def _drop(self) -> None:
        request: Any = self.cycle
        if request is None and self.transport.get_protocol() is self:
            self.transport.abort()


class UvicornServing:
    """Serves an application. Implements Serving."""

    def __init__(self, application: Any, limits: dict[str, Any]) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # it logs whole URLs
        NodeHttpProtocol.patience = min(REQUEST_PATIENCE, limits["HANDSHAKE_TIMEOUT"])
        self._server = Server(
            Config(
                application,
                interface="asgi3",
                ws=NodeWebSocketProtocol,
                http=NodeHttpProtocol,
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                ws_per_message_deflate=False,
                server_header=False,
                ws_max_size=limits["MAX_FRAME_BYTES"],
                ws_ping_interval=limits["PING_INTERVAL"],
                ws_ping_timeout=limits["PING_TIMEOUT"],
                timeout_graceful_shutdown=1,
            )
        )

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`."""
        self.loop.run_until_complete(self._serve(listening))

    def stop(self) -> None:
        """End `run`."""
        self._server.should_exit = True

    def stop_listening(self) -> None:
        """Take no new connections; those there are go on."""
        for each in self._server.servers:
            each.close()

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, at most so long."""
        running = self._server.server_state.tasks
        if running:
            _, left = await asyncio.wait(list(running), timeout=seconds)
            return not left
        return True

    async def _serve(self, listening: socket.socket) -> None:
        server = self._server
        server.config.load()
        server.lifespan = LifespanOff(server.config)
        await server.startup(sockets=[listening])
        await server.main_loop()
        await server.shutdown()

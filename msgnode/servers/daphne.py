"""Daphne with what a message node needs of its server.

- A Link in the scope (`extensions["msgnode.link"]`): frames go to the consumer without a queue and
  to the socket without a copy; it knows when the socket is full and can stop reading it.
- A frame over the limit ends the socket with 4413, a fault of the protocol with 1002 or 1007, which
  stubs can tell from a lost connection.
- An upgrade that is refused can be answered in words (ASGI's `websocket.http.response`).
- A socket made elsewhere, which several workers share.
- A drain on shutdown: sockets are closed with 3001 and the application is let finish; stock Daphne
  drops them and never calls `disconnect`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import AdoptedStreamServerEndpoint
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from msgnode.core.faults import FAULTS
from msgnode.servers.daphne_http import NodeHttpFactory, end_if_reset
from msgnode.servers.socket_link import (
    CLOSE_HANDSHAKE,
    CLOSE_PATIENCE,
    FAILURE_PATIENCE,
    FailedClient,
    SocketLink,
)
from msgnode.servers.text_frames import whole_texts
from msgnode.sessions.rules import CloseCode

log = logging.getLogger(__name__)

reactor: Any = _reactor


@implementer(IPushProducer)
class DaphneLink(SocketLink):
    """A link over one of Daphne's protocols.

    It is full as soon as the kernel does not take everything; Twisted calls resumeProducing when
    its buffer has run empty.
    """

    def __init__(self, protocol: NodeProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._transport = protocol.transport
        self._early: list[bytes] = []

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        self._transport.unregisterProducer()  # the HTTP channel's, from before the upgrade
        self._transport.registerProducer(self, True)
        self._protocol.receiver = receiver
        for frame in self._early:
            receiver(frame)
        self._early.clear()
        await self._closed.wait()

    def _send(self, data: bytes) -> None:
        """To the socket at once where nothing waits before it.

        That saves Twisted's wait for a writable socket.
        """
        transport = self._transport
        if not transport.connected or self._protocol.state != self._protocol.STATE_OPEN:
            return
        if not transport.dataBuffer and not transport._tempDataBuffer:
            sent = transport.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                data = data[sent:]
        transport.write(data)  # which finds out by itself if the connection is lost
        if not self.is_paused and transport.connected:
            transport.producerPaused = True  # so that Twisted says when all of it is sent
            self.full()

    @property
    def unsent_bytes(self) -> int:
        transport = self._transport
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def _begin_close(self, code: int, reason: str) -> None:
        protocol = self._protocol
        was_paused = self.is_paused
        if protocol.state == protocol.STATE_OPEN:
            protocol.sendClose(code, reason)
        self.closing()
        self.resume_reading()  # or the peer's half of the closing handshake is never read
        if was_paused:
            # Nobody reads what is in the buffer, so the closing frame behind it is never sent.
            reactor.callLater(CLOSE_PATIENCE, self._drop)

    def pause_reading(self) -> None:
        self._transport.pauseProducing()

    def resume_reading(self) -> None:
        if self._protocol.state in (self._protocol.STATE_OPEN, self._protocol.STATE_CLOSING):
            self._transport.resumeProducing()

    def keep(self, frame: bytes) -> None:
        """A frame that came before the consumer asked for any."""
        self._early.append(frame)

    def pauseProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.full()

    def resumeProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.drained()
        if self._transport.disconnecting:
            self._transport.startWriting()  # Twisted forgets to hang up when it resumes a producer

    def stopProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.full()

    def _drop(self) -> None:
        if self._protocol.state != self._protocol.STATE_CLOSED:
            self._transport.abortConnection()


class NodeProtocol(WebSocketProtocol):
    """Daphne's WebSocket protocol with a Link."""

    receiver: Callable[[bytes], None] | None = None
    link: DaphneLink | None = None
    _refusal: dict[str, Any] | None = None
    _failed: FailedClient | None = None
    data: bytes  # autobahn's: what has been read and not consumed

    def _connectionMade(self) -> None:  # noqa: N802
        """autobahn writes all options into a log line nobody reads: an eighth of an open."""
        for name in self.CONFIG_ATTRS:
            setattr(self, name, getattr(self.factory, name))
        self.CONFIG_ATTRS: tuple[str, ...] = ()
        super()._connectionMade()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        """Give whole text frames to the receiver; autobahn gets everything else."""
        if self._failed is not None:
            if not self._failed.read(len(data)):
                self.transport.abortConnection()
            return
        if self.link is not None and self.link.awaiting:
            self.link.heard()
        receiver = self.receiver
        if receiver is None or not self._is_between_frames():
            super().dataReceived(data)
            return
        if self.data:
            data = self.data + data
        texts, end, is_plain = whole_texts(data, self.maxMessagePayloadSize)
        self.data = data[end:]
        if texts:
            self.last_ping = time.time()
            for text in texts:
                receiver(text)
        if not is_plain:
            super().dataReceived(b"")

    def _is_between_frames(self) -> bool:
        """Whether autobahn has nothing under way: no frame, no fragments, no ping of its own."""
        return (
            self.state == self.STATE_OPEN
            and self.current_frame is None
            and not self.inside_message
            and self.autoPingTimeoutCall is None
            and not self.muted
        )

    def onMessage(self, payload: bytes, isBinary: bool) -> None:  # noqa: N802, N803
        self.last_ping = time.time()
        if self.muted:
            return
        if self.receiver is not None:
            self.receiver(payload)
        elif self.link is not None:
            self.link.keep(payload)

    def onPong(self, payload: bytes) -> None:  # noqa: N802
        self.last_ping = time.time()

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Also the extension `websocket.http.response`: an upgrade refused in words."""
        if message.get("type") == "websocket.http.response.start":
            self._refusal = {**message, "body": b""}
        elif message.get("type") == "websocket.http.response.body" and self._refusal is not None:
            self._refusal["body"] += message.get("body", b"")
            if not message.get("more_body", False):
                self.serverReject()
        else:
            super().handle_reply(message)

    def sendHttpErrorResponse(  # noqa: N802
        self,
        code: int,
        reason: str,
        responseHeaders: Any = None,  # noqa: N803
    ) -> None:
        if self._refusal is None:
            super().sendHttpErrorResponse(code, reason, responseHeaders)
            return
        status, body = HTTPStatus(self._refusal["status"]), self._refusal["body"]
        size = str(len(body)).encode()
        headers = [*self._refusal["headers"], (b"content-length", size), (b"connection", b"close")]
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [name.title() + b": " + value for name, value in headers]
        self.sendData(b"\r\n".join([*lines, b"", body]))

    def sendCloseFrame(self, *args: Any, **options: Any) -> None:  # noqa: N802
        if self.link is not None:
            self.link.uncork()
        super().sendCloseFrame(*args, **options)
        if self.link is not None:
            self.link.closing()

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:  # noqa: N802, N803
        try:
            super().onClose(wasClean, code, reason)
        finally:
            link, self.link, self.receiver = self.link, None, None  # a ring nobody would find soon
            if link is not None:
                link.closed()

    def check_timeouts(self) -> None:
        """Called by Daphne every other second."""
        if not end_if_reset(self.transport):
            super().check_timeouts()

    def dropConnection(self, abort: bool = False) -> None:  # noqa: N802
        """A connection that a handshake closed ends with what was written, not with a reset."""
        super().dropConnection(abort=abort and not self.wasClean)
        reactor.callLater(FAILURE_PATIENCE, self.transport.abortConnection)

    def onCloseHandshakeTimeout(self) -> None:  # noqa: N802
        if self._failed is not None and self._failed.is_waited_for():
            again = reactor.callLater(FAILURE_PATIENCE, self.onCloseHandshakeTimeout)
            self.closeHandshakeTimeoutCall = again
        else:
            super().onCloseHandshakeTimeout()

    def _max_message_size_exceeded(self, msg_size: int, max_msg_size: int, reason: str) -> None:
        self._fail_connection(CloseCode.TOO_LARGE, f"a frame may have {max_msg_size} bytes")

    def _fail_connection(self, code: int = 1002, reason: str = "") -> None:
        """Close with a code for what the client did wrong. autobahn would reset the connection."""
        if self.state != self.STATE_OPEN:
            super()._fail_connection(code, reason)
            return
        self._failed = FailedClient()
        self.closeHandshakeTimeout = FAILURE_PATIENCE
        self.sendCloseFrame(code, reason.encode()[:123])
        self.data = b""
        self.transport.unregisterProducer()  # or Twisted waits for it with the end of writing
        self.transport.loseWriteConnection()
        self.transport.resumeProducing()


class _Timers:
    """Timers that run for as long as they are asked to.

    autobahn's are cut to whole seconds: one of a second may run out at once, and a client that
    answers a closing handshake within a millisecond is hung up on before it has the code.
    """

    @staticmethod
    def call_later(delay: float, called: Callable[..., None], *args: Any) -> Any:
        return reactor.callLater(delay, called, *args)


class NodeFactory(WebSocketFactory):
    """Makes the protocol of each socket."""

    protocol = NodeProtocol

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._batched_timer = _Timers
        self.setProtocolOptions(closeHandshakeTimeout=CLOSE_HANDSHAKE)


class NodeServer(Server):
    """Daphne's server, with links and a drain, on a socket that is there already."""

    listening: socket.socket
    _port: Any = None
    request_patience = 60.0

    def run(self) -> None:
        import daphne.server as stock

        stock.WebSocketFactory = NodeFactory
        family = self.listening.family
        number = self.listening.detach()  # Twisted duplicates and closes it
        stock.serverFromString = lambda reactor, _: AdoptedStreamServerEndpoint(
            reactor, number, family
        )
        stock.HTTPFactory = NodeHttpFactory
        super().run()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        if isinstance(protocol, NodeProtocol):
            protocol.link = DaphneLink(protocol)
            extensions = scope.setdefault("extensions", {})
            extensions["msgnode.link"] = protocol.link
            extensions["websocket.http.response"] = {}
        return super().create_application(protocol, scope)

    def application_checker(self) -> None:
        """Stock Daphne never looks again after one connection has failed here."""
        try:
            super().application_checker()
        except Exception as error:
            FAULTS.note("connection", error)
            reactor.callLater(1, self.application_checker)

    def timeout_checker(self) -> None:
        """Every other second; a connection that cannot be looked after is ended."""
        for protocol in tuple(self.connections):
            try:
                protocol.check_timeouts()
            except Exception as error:
                FAULTS.note("connection", error)
                with FAULTS.kept_to("connection"):
                    _transport_of(protocol).abortConnection()
        reactor.callLater(2, self.timeout_checker)

    def kill_all_applications(self) -> Any:
        """Stock Daphne trips over connections that have no application yet."""
        for details in self.connections.values():
            details.setdefault("application_instance", _done())
        return super().kill_all_applications()

    def listen_success(self, port: Any) -> None:
        self._port = port
        super().listen_success(port)

    def stop_listening(self) -> None:
        """Take no new connections; those there are go on."""
        if self._port is not None:
            self._port.stopListening()

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, at most so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            running = [
                details["application_instance"]
                for details in self.connections.values()
                if "application_instance" in details and not details["application_instance"].done()
            ]
            if not running:
                return True
            await asyncio.wait(running, timeout=max(0.0, deadline - time.monotonic()))
        return False


class DaphneServing:
    """Serves an application. Implements Serving."""

    def __init__(self, application: Any, limits: dict[str, Any]) -> None:
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        self._server = NodeServer(
            application=application,
            endpoints=["the socket given to run"],
            signal_handlers=False,
            ping_interval=limits["PING_INTERVAL"],
            ping_timeout=limits["PING_TIMEOUT"],
            websocket_timeout=-1,
            websocket_max_message_size=limits["MAX_FRAME_BYTES"],
            websocket_max_frame_size=limits["MAX_FRAME_BYTES"],
            websocket_handshake_timeout=10,
            http_timeout=120,
            server_name="",
        )
        self._server.request_patience = limits["HANDSHAKE_TIMEOUT"]
        self.stop_listening = self._server.stop_listening
        self.drained = self._server.drained

    def run(self, listening: socket.socket) -> None:
        """Serve until `stop`."""
        self._server.listening = listening
        self._server.run()

    def stop(self) -> None:
        """End `run`."""
        reactor.stop()


def _transport_of(protocol: Any) -> Any:
    """The transport of a WebSocket, or of the channel a request came over."""
    return (getattr(protocol, "channel", None) or protocol).transport


def _done() -> asyncio.Future[None]:
    future = asyncio.get_event_loop().create_future()
    future.set_result(None)
    return future

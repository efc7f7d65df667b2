"""Daphne, extended by what the node needs of its server.

Private names of Daphne, autobahn and Twisted are used in daphne_internals.py and daphne_reactor.py
only.

- A Link in the scope (`extensions["msgnode.link"]`, daphne_link.py).
- A frame over the limit closes the socket with 4413, a protocol error with 1002 or 1007, so that
  stubs can tell them from a lost connection.
- A refused upgrade can have a full HTTP response (ASGI's `websocket.http.response`). One that is no
  handshake is answered with what is wrong, counted, and named in the log, at a limited rate.
- The listening socket is created elsewhere, because several workers share it.
- Connections are accepted and closed a few at a time, so that a rush of them delays nobody.
- Open connections are checked a few at a time; stock Daphne checks all at once every two seconds.
- A drain at shutdown: sockets are closed with 3001 and the application may finish; stock Daphne
  drops them and never sends `disconnect`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from msgnode.core.faults import FAULTS
from msgnode.servers import daphne_internals as internals  # first: it installs the reactor
from msgnode.servers.connection_rounds import ConnectionRounds
from msgnode.servers.daphne_http import NodeHttpFactory, NodeRequest, end_if_reset
from msgnode.servers.daphne_internals import InternalProtocol
from msgnode.servers.daphne_link import DaphneLink
from msgnode.servers.daphne_reactor import TURN, accept_a_few, event_loop
from msgnode.servers.socket_link import (
    CLOSE_HANDSHAKE,
    FAILURE_PATIENCE,
    FailedClient,
)
from msgnode.sessions.rules import CloseCode
from msgnode.web.upgrades import UPGRADE_NEEDED, asks_for_upgrade

from autobahn.websocket.types import ConnectionDeny  # isort: skip
from daphne.server import Server  # isort: skip
from daphne.ws_protocol import WebSocketFactory  # isort: skip
from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet.endpoints import AdoptedStreamServerEndpoint  # isort: skip

reactor: Any = _reactor
log = logging.getLogger(__name__)

HANDSHAKE = "handshake"
"""What refused handshakes are counted under."""
_ACCEPTS = 4
"""Connections accepted per turn of the loop; messages on others wait for their handshakes."""


class NodeProtocol(InternalProtocol):
    """Daphne's WebSocket protocol with a Link."""

    link: DaphneLink | None = None
    _refusal: dict[str, Any] | None = None
    _failed: FailedClient | None = None
    _abortion: asyncio.TimerHandle | None = None  # of a connection that was to end by itself

    def still_sends(self, size: int) -> None:
        """Discard what a failed client still sends, up to a limit."""
        if self._failed is not None and not self._failed.read(size):
            self.transport.abortConnection()

    def onConnect(self, request: Any) -> Any:  # noqa: N802
        """Pass a handshake to the application, unless Daphne would fail to read it."""
        if not request.headers.get("sec-websocket-protocol", "").isascii():
            raise ConnectionDeny(400, "Sec-WebSocket-Protocol has characters that are not ASCII")
        return super().onConnect(request)

    def failHandshake(  # noqa: N802
        self,
        reason: str,
        code: int = 400,
        responseHeaders: Any = None,  # noqa: N803
    ) -> None:
        """Refuse an upgrade; one that the application never saw is answered with what is wrong."""
        if not self._is_known:
            if code == HTTPStatus.BAD_REQUEST and not asks_for_upgrade(self._connection_header):
                code, reason = HTTPStatus.UPGRADE_REQUIRED, f"{reason}. {UPGRADE_NEEDED}"
            FAULTS.refuse(HANDSHAKE, f"{reason[:300]} (from {self.transport.getPeer().host})")
            headers = [(name.encode(), value.encode()) for name, value in responseHeaders or ()]
            self._refusal = {
                "status": code,
                "headers": [*headers, (b"content-type", b"text/plain; charset=utf-8")],
                "body": f"{reason}\n".encode(),
            }
        super().failHandshake(reason, code, responseHeaders)

    @property
    def _is_known(self) -> bool:
        """Whether Daphne and the application know this connection."""
        return hasattr(self, "request")

    @property
    def _connection_header(self) -> str:
        headers: dict[str, str] = getattr(self, "http_headers", {})
        return headers.get("connection", "")

    def onMessage(self, payload: bytes, isBinary: bool) -> None:  # noqa: N802, N803
        """Pass a frame to the connection, or keep it until there is one."""
        self.last_ping = time.monotonic()
        if self.muted:
            return
        if self.receiver is not None:
            self.receiver(payload)
        elif self.link is not None:
            self.link.keep(payload)

    def onPong(self, payload: bytes) -> None:  # noqa: N802
        """Note a sign of life from a silent client."""
        self.last_ping = time.monotonic()

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Support the extension `websocket.http.response`, a full response to a refused upgrade."""
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
        """Answer a refused upgrade with the application's response."""
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
        """Write nothing after a close frame."""
        super().sendCloseFrame(*args, **options)
        if self.link is not None:
            self.link.closing()

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:  # noqa: N802, N803
        """Release the link: its connection is told, and no more frames come."""
        try:
            if self._is_known:
                super().onClose(wasClean, code, reason)
        finally:
            if self._abortion is not None:
                self._abortion.cancel()
            link, self.link, self.receiver = self.link, None, None  # a reference cycle
            if link is not None:
                link.closed()

    def check_timeouts(self) -> None:
        """Check the timeouts; called in each round of the server."""
        if end_if_reset(self.transport):
            return
        is_open = self.state == self.STATE_OPEN
        if not is_open or time.monotonic() - self.last_ping > self.server.ping_interval:
            super().check_timeouts()

    def dropConnection(self, abort: bool = False) -> None:  # noqa: N802
        """End a connection after its closing handshake, without a reset."""
        super().dropConnection(abort=abort and not self.wasClean)
        if internals.unsent_bytes(self.transport):
            later = event_loop().call_later
            self._abortion = later(FAILURE_PATIENCE, self.transport.abortConnection)

    def onCloseHandshakeTimeout(self) -> None:  # noqa: N802
        """Drop a client that does not answer a close, unless more of its data is awaited."""
        if self._failed is not None and self._failed.is_waited_for():
            again = event_loop().call_later
            self.closeHandshakeTimeoutCall = again(FAILURE_PATIENCE, self.onCloseHandshakeTimeout)
        else:
            super().onCloseHandshakeTimeout()

    def too_large(self, limit: int) -> None:
        """End a connection whose frame is longer than the limit, in bytes."""
        self.fail(CloseCode.TOO_LARGE, f"a frame may have {limit} bytes")

    def flooded(self, limit: int) -> None:
        """End a connection that sends too many frames which are no messages."""
        reason = f"more than {limit} control frames or small fragments a second"
        FAULTS.refuse("flood", f"{reason} (from {self.transport.getPeer().host})")
        self.fail(CloseCode.REFUSED, reason)

    def fail(self, code: int, reason: str) -> None:
        """Close with the code of a client error, where autobahn would reset the connection."""
        if not self.may_write:
            super().fail(code, reason)
            return
        self._failed = FailedClient()
        self.hear_no_more(FAILURE_PATIENCE)
        self.sendCloseFrame(code, reason.encode()[:123])
        self.end_stream()


class NodeFactory(WebSocketFactory):
    """Creates the protocol of each socket."""

    protocol = NodeProtocol

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        internals.run_timers_exactly(self)
        self.setProtocolOptions(closeHandshakeTimeout=CLOSE_HANDSHAKE)

    def setProtocolOptions(self, *args: Any, **options: Any) -> None:  # noqa: N802
        """Set options of the protocols to come."""
        super().setProtocolOptions(*args, **options)
        self.protocol = internals.with_options(NodeProtocol, self)


class EventQueue:
    """What an application receives, oldest first; asyncio.Queue takes 3 KB for each socket."""

    __slots__ = ("_events", "_waiting")

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._waiting: list[asyncio.Future[None]] = []

    def put_nowait(self, event: Any) -> None:
        """Add an event."""
        self._events.append(event)
        self._wake()

    async def get(self) -> Any:
        """Remove and return the oldest event, once there is one."""
        while not self._events:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                elif self._events:  # it was woken already; another takes the event
                    self._wake()
                raise
        return self._events.pop(0)

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return


class NodeServer(Server):
    """Daphne's server with links and a drain, on an existing socket."""

    listening: socket.socket
    _port: Any = None
    request_patience = 60.0
    max_request_bytes = 16 * 1024 * 1024

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ending: dict[Any, None] = {}  # connections whose application or socket has ended
        self._rounds = ConnectionRounds(
            lambda: self.connections, self._look_after, reactor.callLater
        )

    def run(self) -> None:
        """Serve on the existing socket until the reactor is stopped."""
        family = self.listening.family
        number = self.listening.detach()  # Twisted duplicates and closes it
        internals.serve_with(
            NodeFactory,
            NodeHttpFactory,
            lambda reactor, _: AdoptedStreamServerEndpoint(reactor, number, family),
        )
        super().run()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        """Start the application of a connection: Daphne's way, with another queue.

        A WebSocket's gets its link, a request's the flow control of its response.

        Returns:
            The queue of what it receives.
        """
        if isinstance(protocol, NodeProtocol):
            protocol.link = DaphneLink(protocol)
            extensions = scope.setdefault("extensions", {})
            extensions["msgnode.link"] = protocol.link
            extensions["websocket.http.response"] = {}
        elif isinstance(protocol, NodeRequest):
            scope.setdefault("extensions", {})["msgnode.writable"] = protocol.writable
        scope.setdefault("asgi", {"version": "3.0"})
        queue, details = EventQueue(), self.connections.get(protocol)
        if details is not None:  # else it is lost already
            reply = partial(self.handle_reply, protocol)
            running = self.application(scope=scope, receive=queue.get, send=reply)
            application = asyncio.ensure_future(running, loop=event_loop())
            application.add_done_callback(lambda _: self._ending.setdefault(protocol))
            details["application_instance"] = application
        return queue

    def protocol_disconnected(self, protocol: Any) -> None:
        """Keep the connection until its application has ended, unless it has been removed."""
        if protocol in self.connections:
            super().protocol_disconnected(protocol)
            self._ending[protocol] = None

    def application_checker(self) -> None:
        """Reap ended connections every second, for at most TURN seconds per turn of the loop.

        Stock Daphne checks all connections, and stops for good after one has failed here.
        """
        self._reap_some(iter(tuple(self._ending)))

    def _reap_some(self, ending: Iterator[Any]) -> None:
        over_at = time.perf_counter() + TURN
        for protocol in ending:
            try:
                self._reap(protocol)
            except Exception as error:
                FAULTS.note("connection", error)
            if time.perf_counter() > over_at:
                event_loop().call_soon(self._reap_some, ending)
                return
        reactor.callLater(1, self.application_checker)

    def _reap(self, protocol: Any) -> None:
        """Remove a connection whose socket and application have both ended."""
        details = self.connections.get(protocol, {})
        application = details.get("application_instance")
        disconnected = details.get("disconnected")
        if application is not None and not application.done():
            late = time.monotonic() - disconnected if disconnected else 0.0
            if late > self.application_close_timeout:
                log.warning("The application of %r did not end in time.", protocol)
                application.cancel()
            return
        del self._ending[protocol]
        if disconnected is not None:
            self.connections.pop(protocol, None)
        if application is None:
            return
        del details["application_instance"]
        error = None if application.cancelled() else application.exception()
        if error is not None:
            log.error("An application failed.", exc_info=error)
            if disconnected is None:
                protocol.handle_exception(error)

    def timeout_checker(self) -> None:
        """Replaces stock Daphne's, which checks all connections in one turn of the loop."""
        self._rounds.go()

    def _look_after(self, protocol: Any) -> None:
        """Check a connection, and end it if that fails.

        A request that is done, or has become a WebSocket, may no longer write to its connection.
        """
        if self.connections[protocol].get("disconnected"):
            return
        try:
            protocol.check_timeouts()
        except Exception as error:
            FAULTS.note("connection", error)
            with FAULTS.kept_to("connection"):
                _transport_of(protocol).abortConnection()

    def kill_all_applications(self) -> Any:
        """Kill all applications; stock Daphne fails on connections without one."""
        for details in self.connections.values():
            details.setdefault("application_instance", _done())
        return super().kill_all_applications()

    def listen_success(self, port: Any) -> None:
        """Keep the port, which a drain closes first."""
        self._port = port
        accept_a_few(port, _ACCEPTS)
        super().listen_success(port)

    def stop_listening(self) -> None:
        """Accept no new connections; open ones continue."""
        if self._port is not None:
            self._port.stopListening()

    async def drained(self, seconds: float) -> bool:
        """Wait until every application has ended, for at most so many seconds."""
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
    """Serves an application, with an event loop that is created before the node is started."""

    def __init__(self, application: Any, limits: dict[str, Any]) -> None:
        self.loop: asyncio.AbstractEventLoop = event_loop()
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
        self._server.max_request_bytes = limits["MAX_REQUEST_BYTES"]
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
    """The transport of a WebSocket, or of the channel of an HTTP request."""
    return (getattr(protocol, "channel", None) or protocol).transport


def _done() -> asyncio.Future[None]:
    future = asyncio.get_event_loop().create_future()
    future.set_result(None)
    return future

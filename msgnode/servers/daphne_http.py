"""Daphne's HTTP side: ends requests that are slow, empty, reset or too large.

A long response can wait until its client has read enough of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import weakref
from typing import Any

from msgnode.core.faults import FAULTS, RESET
from msgnode.servers.daphne_internals import (  # first: it installs the reactor
    channel_of,
    early_bytes,
    is_reset,
    upgraded_to,
)
from msgnode.servers.plain_upgrade import PlainUpgrade, plain_upgrade

from daphne.http_protocol import HTTPFactory, WebRequest  # isort: skip
from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet.interfaces import IPushProducer  # isort: skip
from twisted.internet.protocol import Protocol  # isort: skip
from zope.interface import implementer  # isort: skip

reactor: Any = _reactor


@implementer(IPushProducer)
class _Gate:
    """Closed while the client's socket is full."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()

    def pauseProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.is_open.clear()

    def resumeProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.is_open.set()

    def stopProducing(self) -> None:  # noqa: N802 (Twisted's name)
        self.is_open.set()


class NodeRequest(WebRequest):
    """A request that must be complete within a time limit, however slowly it arrives.

    Twisted only ends connections without any data, and does not limit a body, which it keeps in a
    file.
    """

    _gate: _Gate | None = None

    def __init__(self, channel: Any, *args: Any, **options: Any) -> None:
        self.begun_at = time.monotonic()
        self._received = 0
        channel.was_asked = True
        super().__init__(channel, *args, **options)

    def process(self) -> Any:
        """Serve the request; frames that were sent together with one for an upgrade follow it."""
        named = self.requestHeaders.getRawHeaders(b"upgrade", [b""])[0]
        if named.lower() != b"websocket":
            return super().process()
        if self._received:
            return self.basic_error(400, b"Bad Request", "A WebSocket handshake has no body.")
        early = early_bytes(self.channel)
        served = super().process()
        protocol = upgraded_to(self)
        if protocol is not None:
            # The channel hears of no end any more, and each would keep the other.
            self.channel.requests.remove(self)
            if early:
                protocol.dataReceived(early)
        return served

    async def writable(self, seconds: float) -> bool:
        """Wait until the client has read enough of a long response to be sent more.

        Returns:
            False if it has not within so many seconds, and was cut off.
        """
        if self._gate is None:
            self._gate = _Gate()
            self.registerProducer(self._gate, True)
            _notice_dead(self.channel.transport, self.server.request_patience)
        if self._gate.is_open.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._gate.is_open.wait()
        except TimeoutError:
            if self.channel is not None:
                self.channel.transport.abortConnection()
            return False
        return True

    def finish(self) -> None:
        """End the response, and any wait for its client."""
        if self._gate is not None:
            self._gate = None
            self.unregisterProducer()
        super().finish()

    def gotLength(self, length: int | None) -> None:  # noqa: N802 (Twisted's name)
        """Refuse a body by its announced length, before it is sent."""
        super().gotLength(length)
        if length is not None and length > self.server.max_request_bytes:
            self._too_large()

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
        """Add a part of the body, as long as the whole is within the limit."""
        self._received += len(data)
        if self._received <= self.server.max_request_bytes:
            super().handleContentChunk(data)
        else:
            self._too_large()

    def _too_large(self) -> None:
        """Answer at once, and stop reading."""
        transport = self.channel.transport
        transport.write(
            b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        transport.loseConnection()

    def check_timeouts(self) -> None:
        """Check the timeouts, every two seconds. `request_start` is when it was complete."""
        channel = getattr(self, "channel", None)  # an answered request has none
        if channel is None or end_if_reset(channel.transport):
            return
        patience = self.server.request_patience
        if not hasattr(self, "request_start") and time.monotonic() - self.begun_at > patience:
            self.channel.transport.abortConnection()
        elif self._gate is None:  # else it is a long response
            super().check_timeouts()


def _notice_dead(transport: Any, seconds: float) -> None:
    """Have the kernel end a connection whose peer acknowledges nothing for so many seconds."""
    raw = getattr(transport, "socket", None)
    if raw is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def end_if_reset(transport: Any) -> bool:
    """End a connection that its peer has reset unnoticed; return whether that was so."""
    if getattr(transport, "is_watched", False) or not is_reset(transport):
        return False
    FAULTS.note(RESET)
    transport.abortConnection()
    return True


class NodeHttpFactory(HTTPFactory):
    """Creates the protocol of each connection: HTTP, or a WebSocket if its first read asks for one.

    One whose first request does not begin in time is dropped.
    """

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._silent: dict[FirstRead, float] = {}  # oldest first; until when each may be
        self._is_watching = False

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 (Twisted's name)
        """Create a connection that has not been read yet."""
        if not self._is_watching:
            self._is_watching = True
            reactor.callLater(self.server.request_patience, self._drop_silent)
        made = FirstRead(self, addr)
        self._silent[made] = time.monotonic() + self.server.request_patience
        return made

    def has_spoken(self, connection: FirstRead) -> float:
        """Note that a connection was read, or is lost; return how many seconds were left to it."""
        return self._silent.pop(connection, 0.0) - time.monotonic()

    def upgrade(self, connection: FirstRead, asked: PlainUpgrade) -> None:
        """Have a WebSocket take over a connection whose first read is the request for it."""
        transport = connection.transport
        protocol = self.server.ws_factory.buildProtocol(connection.address)
        transport.protocol = protocol
        protocol.upgrade_plainly(transport, asked)

    def serve(self, connection: FirstRead, data: bytes, seconds: float) -> None:
        """Have HTTP take over a connection, whose first request begins within so many seconds."""
        transport = connection.transport
        protocol = super().buildProtocol(connection.address)
        protocol.requestFactory = NodeRequest
        # A strong reference would keep a connection that has ended, with its request and page.
        reactor.callLater(max(0.0, seconds), _drop_unasking, weakref.ref(protocol))
        transport.protocol = protocol
        protocol.makeConnection(transport)
        protocol.dataReceived(data)

    def _drop_silent(self) -> None:
        while self._silent:
            connection, until = next(iter(self._silent.items()))
            left = until - time.monotonic()
            if left > 0:
                reactor.callLater(left, self._drop_silent)
                return
            del self._silent[connection]
            connection.transport.abortConnection()
        self._is_watching = False


class FirstRead(Protocol):
    """A connection that has sent nothing yet."""

    transport: Any

    def __init__(self, factory: NodeHttpFactory, address: Any) -> None:
        self.factory = factory
        self.address = address

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 (Twisted's name)
        """Pass the connection on to what it asks for."""
        seconds = self.factory.has_spoken(self)
        asked = plain_upgrade(data)
        if asked is not None:
            self.factory.upgrade(self, asked)
        else:
            self.factory.serve(self, data, seconds)

    def connectionLost(self, reason: Any = None) -> None:  # noqa: N802 (Twisted's name)
        """Forget a connection that has never said anything."""
        self.factory.has_spoken(self)


def _drop_unasking(connected: weakref.ref[Any]) -> None:
    """End a connection whose first request has not begun."""
    protocol = connected()
    if protocol is None:
        return
    channel = channel_of(protocol)
    if not getattr(channel, "was_asked", False) and channel.transport is not None:
        channel.transport.abortConnection()

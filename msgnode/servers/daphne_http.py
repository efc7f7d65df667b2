"""Daphne's HTTP side: requests that drip in, ask for nothing, were reset or are too large, end.

A long answer knows when its client has read enough of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any

from msgnode.core.faults import FAULTS, RESET
from msgnode.servers.daphne_internals import channel_of, is_reset  # first: installs the reactor

from daphne.http_protocol import HTTPFactory, WebRequest  # isort: skip
from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet.interfaces import IPushProducer  # isort: skip
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
    """A request that must be complete within a time, however slowly it drips in.

    Twisted only ends connections on which nothing comes at all. Nor does it bound a body, which it
    keeps in a file.
    """

    _gate: _Gate | None = None

    def __init__(self, channel: Any, *args: Any, **options: Any) -> None:
        self.begun_at = time.monotonic()
        self._received = 0
        channel.was_asked = True
        super().__init__(channel, *args, **options)

    async def writable(self, seconds: float) -> bool:
        """For an answer that goes on: wait until the client has read enough to be sent more.

        Returns:
            False if it has not within so many seconds, and is cut off.
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
        """End the answer; nobody waits for the client to read any more."""
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
        """Take a part of the body, as long as all of it is within the limit."""
        self._received += len(data)
        if self._received <= self.server.max_request_bytes:
            super().handleContentChunk(data)
        else:
            self._too_large()

    def _too_large(self) -> None:
        """Answer at once, and read no more."""
        transport = self.channel.transport
        transport.write(
            b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        transport.loseConnection()

    def check_timeouts(self) -> None:
        """Called by Daphne every other second. `request_start` is when all of it was there."""
        channel = getattr(self, "channel", None)  # a request that is answered has none
        if channel is None or end_if_reset(channel.transport):
            return
        patience = self.server.request_patience
        if not hasattr(self, "request_start") and time.monotonic() - self.begun_at > patience:
            self.channel.transport.abortConnection()
        elif self._gate is None:  # or it is an answer that goes on
            super().check_timeouts()


def _notice_dead(transport: Any, seconds: float) -> None:
    """Have the kernel end a connection whose peer acknowledges nothing for so long."""
    raw = getattr(transport, "socket", None)
    if raw is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def end_if_reset(transport: Any) -> bool:
    """End a connection that its peer has reset unnoticed; whether it was one."""
    if not is_reset(transport):
        return False
    FAULTS.note(RESET)
    transport.abortConnection()
    return True


class NodeHttpFactory(HTTPFactory):
    """Makes the protocol of each HTTP connection."""

    def buildProtocol(self, addr: Any) -> Any:  # noqa: N802 (Twisted's name)
        """Make a connection that is dropped if it asks for nothing in time."""
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = NodeRequest
        reactor.callLater(self.server.request_patience, _drop_unasking, protocol)
        return protocol


def _drop_unasking(protocol: Any) -> None:
    """End a connection whose first request has not even begun."""
    channel = channel_of(protocol)
    if not getattr(channel, "was_asked", False) and channel.transport is not None:
        channel.transport.abortConnection()

"""A Link over one of Daphne's WebSockets.

Frames reach the consumer without a queue and the socket without a copy; the link knows when the
socket is full, and can pause reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgnode.servers import daphne_internals as internals  # first: it installs the reactor
from msgnode.servers.daphne_internals import InternalProtocol
from msgnode.servers.socket_link import CLOSE_PATIENCE, SocketLink

from twisted.internet import reactor as _reactor  # isort: skip
from twisted.internet.interfaces import IPushProducer  # isort: skip
from zope.interface import implementer  # isort: skip

reactor: Any = _reactor


@implementer(IPushProducer)
class DaphneLink(SocketLink):
    """A link over one of Daphne's protocols.

    It is full as soon as the kernel does not accept everything; Twisted calls resumeProducing when
    its buffer is empty.
    """

    def __init__(self, protocol: InternalProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._transport = protocol.transport
        self.set_gone(protocol.transport.is_gone)
        self._early: list[bytes] = []
        self._left: int | None = None  # unconfirmed when the connection was lost

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """Pass on what has already come, then each frame, until the socket is closed."""
        self._transport.unregisterProducer()  # the HTTP channel's, from before the upgrade
        self._transport.registerProducer(self, True)
        self._protocol.receiver = receiver
        for frame in self._early:
            receiver(frame)
        self._early.clear()
        await self.until_closed()

    def ping(self, answered: Callable[[], None]) -> bool:
        """Ask the peer for a sign of life (see Link); one that has gone will be noticed anyway."""
        return self._is_gone or super().ping(answered)

    def _send(self, data: bytes) -> None:
        """Write to the socket at once, if nothing is buffered.

        That saves Twisted's wait for a writable socket.
        """
        transport = self._transport
        if not transport.connected or not self._protocol.may_write:
            self._has_dropped = True
            return
        rest = internals.write_now(transport, data)
        if not rest:
            return
        transport.write(rest)  # which notices by itself if the connection is lost
        if not self._is_full and transport.connected:
            internals.tell_when_empty(transport)
            self.full()

    @property
    def unsent_bytes(self) -> int:
        """The bytes that Twisted has buffered because the kernel does not accept them."""
        return internals.unsent_bytes(self._transport)

    def _unconfirmed(self) -> int:
        if self._left is not None:
            return self._left
        return internals.unconfirmed_bytes(self._transport)

    def mark_ended(self) -> None:
        """Note what is not confirmed, before the socket is closed."""
        self._left = self._unconfirmed()

    def _begin_close(self, code: int, reason: str) -> None:
        protocol = self._protocol
        was_paused = self._is_full
        if protocol.may_write:
            protocol.sendClose(code, reason)  # after the corked frames
            was_paused = was_paused or self.unsent_bytes > 0
        self.closing()
        self.resume_reading()  # else the peer's half of the closing handshake is never read
        if was_paused:
            # The client reads nothing, so a close frame would stay in the buffer.
            reactor.callLater(CLOSE_PATIENCE, self._drop)

    def pause_reading(self) -> None:
        """Stop reading from the kernel: its window closes, and the client waits."""
        self._protocol.set_reading(False)

    def resume_reading(self) -> None:
        """Resume reading, unless the socket is gone."""
        if self._protocol.state in (self._protocol.STATE_OPEN, self._protocol.STATE_CLOSING):
            self._protocol.set_reading(True)

    def keep(self, frame: bytes) -> None:
        """Keep a frame that came before the consumer asked for any."""
        self._early.append(frame)

    def pauseProducing(self) -> None:  # noqa: N802 (Twisted's name)
        """Note that the transport's buffer is full: the client reads too slowly."""
        self.full()

    def resumeProducing(self) -> None:  # noqa: N802 (Twisted's name)
        """Note that the transport's buffer is empty again."""
        self.drained()
        if self._transport.disconnecting:
            self._transport.startWriting()  # else Twisted does not close after resuming

    def stopProducing(self) -> None:  # noqa: N802 (Twisted's name)
        """Note that the transport is lost, and accepts nothing more."""
        self.full()

    def _drop(self) -> None:
        if not self._protocol.has_closed:
            self._transport.abortConnection()

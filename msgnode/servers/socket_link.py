"""The Link for the node's own servers: text frames that are written together are sent together.

Implements the Link of sessions/outbox.py. A server defines how bytes reach its transport, how a
closing handshake begins, and how reading pauses. A link whose transport fails is dropped; the
failure is counted and affects no other.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic

from msgnode.core.faults import FAULTS

from .cork import CORK

CLOSE_HANDSHAKE = 5.0
"""Seconds that a client has for its half of the closing handshake, if it reads."""
CLOSE_PATIENCE = 1.0
"""Seconds until a socket whose client does not read is dropped instead of closed."""
FAILURE_PATIENCE = 10.0
"""Seconds without data after which a client that was closed for its own error is dropped; see
FailedClient.
"""
FAILURE_LIMIT = 60.0
FAILURE_BYTES = 64 * 1024 * 1024
"""The total limits, in seconds and bytes."""

_PING = b"\x89\x00"
_SHORT = [struct.pack("!BB", 0x81, size) for size in range(126)]
_CORK_LIMIT = 64 * 1024  # bytes; the transports' own measure of a full buffer


class _EncodedFrame:
    """The last frame as it goes over the wire; the sockets of a fan-out share it."""

    __slots__ = ("data", "frame", "size")

    def __init__(self) -> None:
        self.take(b"")

    def take(self, frame: bytes) -> None:
        """Put the header before a frame: two to ten bytes, no mask (RFC 6455, 5.2)."""
        self.frame, self.size = frame, len(frame)
        if self.size < 126:
            header = _SHORT[self.size]
        elif self.size < 65536:
            header = struct.pack("!BBH", 0x81, 126, self.size)
        else:
            header = struct.pack("!BBQ", 0x81, 127, self.size)
        self.data = header + frame


_ENCODED = _EncodedFrame()


class FailedClient:
    """Discards what still comes from a client that was closed for an error of its own.

    An example is a frame that is too large. A socket that is closed with unread bytes is reset, and
    a reset loses the close code that tells the client why.
    """

    def __init__(self) -> None:
        self._until = monotonic() + FAILURE_LIMIT
        self._left = FAILURE_BYTES
        self._has_sent = False

    def read(self, size: int) -> bool:
        """Note bytes that have come; return whether more may come."""
        self._has_sent = True
        self._left -= size
        return self._left > 0

    def is_waited_for(self) -> bool:
        """Whether the client is still sending, and may; called every FAILURE_PATIENCE seconds."""
        has_sent, self._has_sent = self._has_sent, False
        return has_sent and monotonic() < self._until


class SocketLink(ABC):
    """One socket. `receiver` gets its frames.

    Attributes:
        is_paused: whether it takes no frames, because its buffer is full or its peer has gone. It
            is looked at for every frame.
    """

    def __init__(self) -> None:
        self.is_paused = False
        self._is_full = self._is_gone = False
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self._is_open = True
        self._is_losing = False
        self._has_closed = False
        self._waits_for_close: asyncio.Future[None] | None = None
        self._corked: list[bytes] = []
        self._corked_bytes = 0
        self._has_dropped = False
        self.bytes_behind = 0
        """Bytes of pings, pongs and close frames that were written behind the last frame."""
        self.awaiting: list[Callable[[], None]] = []
        """Callbacks for a sign of life; the server's protocol calls `heard` when bytes come."""

    @abstractmethod
    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """Pass every frame to `receiver` until the socket is closed."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Pause reading from the socket."""
        ...

    @abstractmethod
    def resume_reading(self) -> None:
        """Resume reading from the socket."""
        ...

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """The bytes buffered in the transport, not in the kernel."""

    @property
    def is_all_received(self) -> bool:
        """Whether the peer's system has confirmed all frames (see Link); a proxy counts as one."""
        if self._corked or self._has_dropped:
            return False
        return self._unconfirmed() <= self.bytes_behind

    @abstractmethod
    def _unconfirmed(self) -> int:
        """The bytes that were written and the peer's system has not confirmed."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Pass bytes to the transport. An error ends this link."""

    @abstractmethod
    def _begin_close(self, code: int, reason: str) -> None:
        """Begin the closing handshake after the corked frames. An error ends this link."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop the socket without a closing handshake. May raise."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket after the frames written so far."""
        try:
            self._begin_close(code, reason)
        except Exception as error:
            self.failed(error)

    def write(self, frame: bytes) -> None:
        """Write one text frame, from server to client (RFC 6455, 5.2).

        Two to ten bytes of header, no mask.
        """
        if not self._is_open:
            return
        if frame is not _ENCODED.frame:
            _ENCODED.take(frame)
        if not self._corked:
            CORK.add(self)
        self._corked.append(_ENCODED.data)
        self._corked_bytes += _ENCODED.size
        if self._corked_bytes > _CORK_LIMIT:
            self.uncork()

    def ping(self, answered: Callable[[], None]) -> bool:
        """Ping the peer (see Link)."""
        if self._is_losing:
            return True  # its loss will be reported
        if not self._is_open or self.is_paused:
            return False
        self.awaiting.append(answered)
        self.uncork()
        self.bytes_behind += len(_PING)
        try:
            self._send(_PING)
        except Exception as error:
            self.failed(error)
        return True

    def drop(self) -> None:
        """Give the socket up without a word."""
        try:
            self._drop()
        except Exception as error:
            FAULTS.note("link", error)
        self.closing()

    def uncork(self) -> None:
        """Pass what was written in this turn of the loop to the transport."""
        if data := self.take_corked():
            try:
                self._send(data)
            except Exception as error:
                self.failed(error)

    def take_corked(self) -> bytes:
        """Remove and return what was written in this turn of the loop, for the caller to send."""
        if not self._corked:
            return b""
        data = b"".join(self._corked)
        self._corked.clear()
        self._corked_bytes = self.bytes_behind = 0
        return data

    def failed(self, error: Exception) -> None:
        """Drop the socket after a failure of the transport; the caller of the link continues."""
        FAULTS.note("link", error)
        try:
            self._drop()
        except Exception as further:
            FAULTS.note("link", further)
        self._corked.clear()
        self._corked_bytes = 0
        self._has_dropped = True
        self.closed()

    # --- told by the server's protocol ------------------------------------------------------------

    def heard(self) -> None:
        """Call those who wait for a sign of life of the peer."""
        waiting, self.awaiting = self.awaiting, []
        for answered in waiting:
            answered()

    def full(self) -> None:
        """Note that the transport's buffer is full."""
        was_full = self._is_full
        self._is_full = self.is_paused = True
        if self._is_open and not was_full:
            self.on_pause()

    def drained(self) -> None:
        """Note that the transport's buffer is empty again."""
        if self._is_open:
            self._is_full = False
            self.is_paused = self._is_gone
            self.on_resume()

    def set_gone(self, is_gone: bool) -> None:
        """Note whether the peer has gone; the loss of the socket follows, or it goes on."""
        self._is_gone = is_gone
        self.is_paused = self._is_full or is_gone

    def closing(self) -> None:
        """Accept no more frames; later ones wait in the outbox for the next socket."""
        self._is_open = False
        self._is_full = self.is_paused = True

    def mark_lost(self) -> None:
        """Note that the socket is lost; `closed` follows in a later turn."""
        self._is_losing = True
        self.closing()

    def closed(self) -> None:
        """The socket is gone."""
        self.closing()
        self._has_closed = True
        if self._waits_for_close is not None and not self._waits_for_close.done():
            self._waits_for_close.set_result(None)

    async def until_closed(self) -> None:
        """Wait until the socket is gone, in one task."""
        if not self._has_closed:
            self._waits_for_close = asyncio.get_running_loop().create_future()
            await self._waits_for_close

"""The way out to a socket, for servers of ours: text frames of one turn of the loop leave together.

Implements the Link of sessions/outbox.py. A server gives what differs: how bytes reach its
transport, how a closing handshake is begun, and how reading stops. A link whose transport fails is
dropped; the failure is counted and reaches nobody else.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic

from msgnode.core.faults import FAULTS

CLOSE_HANDSHAKE = 5.0
"""Seconds that a client which reads has for its half of the closing handshake."""
CLOSE_PATIENCE = 1.0
"""Seconds until a socket whose reader does not read is dropped instead of closed."""
FAILURE_PATIENCE = 10.0
"""Seconds without a byte from a client, once the node has closed for a fault of the client's, until
it is dropped; see FailedClient."""
FAILURE_LIMIT = 60.0
FAILURE_BYTES = 64 * 1024 * 1024
"""Seconds, and bytes, in all."""

_PING = b"\x89\x00"
_SHORT = [struct.pack("!BB", 0x81, size) for size in range(126)]
_CORK_LIMIT = 64 * 1024  # bytes; the transports' own measure of a full buffer


class FailedClient:
    """What is still read, and thrown away, of a client that was closed for a fault of its own.

    Such as a frame that is too large. A socket dropped with unread bytes is reset, and a reset
    loses the code that is to tell the client why.
    """

    def __init__(self) -> None:
        self._until = monotonic() + FAILURE_LIMIT
        self._left = FAILURE_BYTES
        self._has_sent = False

    def read(self, size: int) -> bool:
        """So many bytes have come; whether more may."""
        self._has_sent = True
        self._left -= size
        return self._left > 0

    def is_waited_for(self) -> bool:
        """Asked every FAILURE_PATIENCE seconds: whether it is still sending, and may."""
        has_sent, self._has_sent = self._has_sent, False
        return has_sent and monotonic() < self._until


class SocketLink(ABC):
    """One socket. `receiver` takes its frames, `is_paused` says that its buffer is full."""

    def __init__(self) -> None:
        self.is_paused = False
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self._is_open = True
        self._is_losing = False
        self._closed = asyncio.Event()
        self._corked: list[bytes] = []
        self._corked_bytes = 0
        self.awaiting: list[Callable[[], None]] = []
        """Who waits for a sign of life; the server's protocol says `heard` when bytes come."""

    @abstractmethod
    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """Give every frame to `receiver` until the socket is closed."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Read nothing more from the socket for now."""
        ...

    @abstractmethod
    def resume_reading(self) -> None:
        """Read from it again."""
        ...

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """What the transport holds, not what the kernel does."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Hand bytes to the transport. What it raises ends this link."""

    @abstractmethod
    def _begin_close(self, code: int, reason: str) -> None:
        """Begin the closing handshake, behind what is corked. What it raises ends this link."""

    @abstractmethod
    def _drop(self) -> None:
        """Give the socket up without a word. May raise."""

    def close(self, code: int, reason: str) -> None:
        """Close the socket after what has been written."""
        try:
            self._begin_close(code, reason)
        except Exception as error:
            self.failed(error)

    def write(self, frame: bytes) -> None:
        """One text frame, from server to client (RFC 6455, 5.2).

        Two to ten bytes of header, no mask.
        """
        if not self._is_open:
            return
        size = len(frame)
        if size < 126:
            header = _SHORT[size]
        elif size < 65536:
            header = struct.pack("!BBH", 0x81, 126, size)
        else:
            header = struct.pack("!BBQ", 0x81, 127, size)
        if not self._corked:
            _cork(self)
        self._corked += (header, frame)
        self._corked_bytes += size
        if self._corked_bytes > _CORK_LIMIT:
            self.uncork()

    def ping(self, answered: Callable[[], None]) -> bool:
        """Ask the peer for a sign of life (see Link)."""
        if self._is_losing:
            return True  # what comes is the news of its loss
        if not self._is_open or self.is_paused:
            return False
        self.awaiting.append(answered)
        self.uncork()
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
        """Hand over what was written in this turn of the loop."""
        if data := self.take_corked():
            try:
                self._send(data)
            except Exception as error:
                self.failed(error)

    def take_corked(self) -> bytes:
        """What was written in this turn of the loop; who takes it sends it."""
        if not self._corked:
            return b""
        data = b"".join(self._corked)
        self._corked.clear()
        self._corked_bytes = 0
        return data

    def failed(self, error: Exception) -> None:
        """The transport failed: the socket is given up, and whoever runs the link goes on."""
        FAULTS.note("link", error)
        try:
            self._drop()
        except Exception as further:
            FAULTS.note("link", further)
        self._corked.clear()
        self._corked_bytes = 0
        self.closed()

    # --- told by the server's protocol ------------------------------------------------------------

    def heard(self) -> None:
        """The peer has sent something, and somebody waits for that."""
        waiting, self.awaiting = self.awaiting, []
        for answered in waiting:
            answered()

    def full(self) -> None:
        """The transport's buffer is full."""
        was_paused, self.is_paused = self.is_paused, True
        if self._is_open and not was_paused:
            self.on_pause()

    def drained(self) -> None:
        """The transport's buffer has run empty."""
        if self._is_open:
            self.is_paused = False
            self.on_resume()

    def closing(self) -> None:
        """Nothing more can be written: what comes from now on waits for the next socket."""
        self._is_open = False
        self.is_paused = True

    def losing(self) -> None:
        """The socket is gone; `closed` follows in its turn."""
        self._is_losing = True
        self.closing()

    def closed(self) -> None:
        """The socket is gone."""
        self.closing()
        self._closed.set()


_corked_links: list[SocketLink] = []


def _cork(link: SocketLink) -> None:
    """Have a link's frames leave together at the end of this turn of the loop."""
    if not _corked_links:
        asyncio.get_running_loop().call_soon(_uncork)
    _corked_links.append(link)


def _uncork() -> None:
    links = _corked_links.copy()
    _corked_links.clear()
    for link in links:
        link.uncork()  # which raises nothing: a link that fails ends by itself

"""A session's outbox: frames to be written to its socket, or kept while it has none.

It guarantees that frames leave in the order they were put, each once, and that memory is bounded by
`limit` bytes. While the socket accepts frames they are written at once and nothing is kept. When
the socket is full or gone, frames are queued; above a quarter of the limit the reader counts as
behind, and senders pause until the queue has shrunk. A socket has room for a quarter of the limit
more than what is kept without one: whoever comes back to a full queue reads it while senders still
learn that they have to pause. A frame for which there is no room, here or in
the budget of the session's source and subject, is dropped; then `has_gap` is set, and `overflow`
ends a socket that does not read. What a full socket has accepted but not sent counts towards the
budget as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from msgnode.bus.ports import DeliveryResult
from msgnode.core.faults import FAULTS

from .budgets import QueueBudget

_WRITTEN = DeliveryResult.WRITTEN
_OVERHEAD = 64  # bytes of memory a waiting frame costs besides its text


class Link(Protocol):
    """A socket as the outbox needs it. The server provides one (msgnode.servers.daphne_link)."""

    on_pause: Callable[[], None]
    on_resume: Callable[[], None]

    @property
    def is_paused(self) -> bool:
        """Whether it takes no frames at the moment."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """Approximately the bytes that it was given and has not sent."""
        ...

    @property
    def is_all_received(self) -> bool:
        """Whether the peer's system has confirmed all frames that were written."""
        ...

    def write(self, frame: bytes) -> None:
        """Write one frame to the socket. Never blocks; sets `is_paused` when it is full."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the socket after the frames written so far."""
        ...

    def ping(self, answered: Callable[[], None]) -> bool:
        """Ping the peer; `answered` is called when it sends anything.

        Returns:
            False if it cannot be pinged now.
        """
        ...

    def drop(self) -> None:
        """Drop the socket without a closing handshake, and what it has not sent."""
        ...

    def pause_reading(self) -> None:
        """Stop reading from the socket for now."""
        ...

    def resume_reading(self) -> None:
        """Resume reading from the socket."""
        ...


class Outbox:
    """The frames queued for one session's socket; see the head of the file."""

    __slots__ = (
        "_budget",
        "_bytes",
        "_limit",
        "_link",
        "_relief",
        "_stores",
        "_unsent",
        "_waiting",
        "frames",
        "frames_bytes",
        "has_gap",
        "holders",
        "overflow",
    )

    def __init__(self, limit: int, stores: bool, overflow: Callable[[], None]) -> None:
        self.frames = 0  # accepted since it was made
        self.frames_bytes = 0
        self.has_gap = False
        self.holders: tuple[str, ...] = ()
        self._budget: QueueBudget | None = None
        self._limit = limit
        self._stores = stores
        self.overflow = overflow
        self._waiting: deque[bytes] | None = None  # made when needed: 0.7 KB, empty or not
        self._bytes = 0
        self._unsent = 0
        self._link: Link | None = None
        self._relief: list[Callable[[], None]] = []

    @property
    def waiting_bytes(self) -> int:
        """The bytes queued here and in a full socket."""
        return self._bytes + self._unsent

    def put(self, frame: bytes) -> DeliveryResult:
        """Write or queue one frame. Never blocks."""
        link = self._link
        if link is not None and not link.is_paused and not self._waiting:
            link.write(frame)
            self.frames += 1
            self.frames_bytes += len(frame)
            return _WRITTEN
        if link is None and not self._stores:
            return DeliveryResult.DROPPED
        size = len(frame) + _OVERHEAD
        limit = self._limit if link is None else self._limit + self._limit // 4
        if self._bytes + size > limit or not self._take(size):
            self.has_gap = True
            if link is not None:
                self.overflow()
            return DeliveryResult.DROPPED
        self._queue().append(frame)
        self._bytes += size
        self.frames += 1
        self.frames_bytes += len(frame)
        if link is None:
            return DeliveryResult.QUEUED
        return DeliveryResult.BEHIND if self.is_behind else DeliveryResult.WRITTEN

    @property
    def is_behind(self) -> bool:
        """Whether more than a quarter of the limit is queued."""
        return self._bytes > self._limit // 4

    def charge_to(self, budget: QueueBudget, holders: tuple[str, ...]) -> None:
        """Set the budget, and the holders that the queue is charged to."""
        self._budget = budget
        budget.charge(self, holders)

    def give_up(self) -> None:
        """Discard the queue, because others need the room; the session is told of a gap."""
        self._refused()
        self.clear()
        self._sent()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once, when the queue is down to half of that, or the socket is gone."""
        self._relief.append(callback)

    def attach(self, link: Link) -> None:
        """Write to this socket from now on, the queued frames first."""
        self._link = link
        link.on_pause = self._blocked
        link.on_resume = self._resumed
        if link.is_paused:
            self._blocked()
        self._flush()

    def detach(self) -> None:
        """Queue frames from now on, because the socket is gone; what it may have lost is a gap."""
        if self._link is not None and not self._link.is_all_received:
            self.has_gap = True
        self._link = None
        self._sent()
        self._relieve()

    def take(self) -> bytes | None:
        """Remove and return the oldest queued frame; None if the queue is empty."""
        if not self._waiting:
            return None
        frame = self._waiting.popleft()
        self._give(len(frame) + _OVERHEAD)
        return frame

    def put_back(self, frames: Iterable[bytes]) -> None:
        """Put frames that a lost socket has not sent back at the head of the queue."""
        for frame in reversed(list(frames)):
            size = len(frame) + _OVERHEAD
            if not self._stores or not self._take(size):
                self.has_gap = True
                return
            self._queue().appendleft(frame)
            self._bytes += size

    def clear(self) -> None:
        """Discard the queue."""
        self._waiting = None
        self._give(self._bytes)
        self._relieve()

    def _queue(self) -> deque[bytes]:
        if self._waiting is None:
            self._waiting = deque()
        return self._waiting

    def _take(self, size: int) -> bool:
        return self._budget is None or self._budget.take(self, size)

    def _give(self, size: int) -> None:
        self._bytes -= size
        if self._budget is not None and size:
            self._budget.give(self, size)

    def _blocked(self) -> None:
        """Charge the budget for what a full socket has not sent; without room, end the socket."""
        size = self._link.unsent_bytes - self._unsent if self._link is not None else 0
        if size <= 0:
            return
        if self._take(size):
            self._unsent += size
        else:
            self._refused()

    def _refused(self) -> None:
        """Handle a lack of room: end at once a socket that holds unsent frames."""
        link = self._link
        self.has_gap = True
        self.overflow()
        if link is not None and link.is_paused:
            link.drop()

    def _resumed(self) -> None:
        self._sent()
        self._flush()

    def _sent(self) -> None:
        size, self._unsent = self._unsent, 0
        if self._budget is not None and size:
            self._budget.give(self, size)

    def _flush(self) -> None:
        link = self._link
        while link is not None and self._waiting and not link.is_paused:
            frame = self._waiting.popleft()
            self._give(len(frame) + _OVERHEAD)
            link.write(frame)
        if not self._waiting:
            self._waiting = None
        if self._bytes <= self._limit // 8:
            self._relieve()

    def _relieve(self) -> None:
        callbacks, self._relief = self._relief, []
        for callback in callbacks:
            with FAULTS.kept_to("sender"):
                callback()

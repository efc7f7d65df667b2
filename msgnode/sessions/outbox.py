"""A session's outbox: what is to be written to its socket, or kept while it has none.

Promise: frames leave in the order they were put, each once; memory is bounded by `limit` bytes.
While the socket takes frames they are written at once and nothing is kept here. When the socket is
full, or gone, frames wait; above a quarter of the limit the reader counts as behind, and senders
are held back until it is relieved. A frame that finds no room, here or in the budget of who is
behind the session, is dropped, `has_gap` says so, and the `overflow` callable ends a socket that
does not read. What a full socket has taken and not sent counts towards that budget as well.
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
    """A socket as the outbox needs it.

    Servers provide one (msgnode.servers.daphne), or AsgiLink wraps ASGI's `send`.
    """

    is_paused: bool
    on_pause: Callable[[], None]
    on_resume: Callable[[], None]

    @property
    def unsent_bytes(self) -> int:
        """What it was handed and has not sent, about."""
        ...

    def write(self, frame: bytes) -> None:
        """Hand one frame to the socket. Never waits; sets `is_paused` when it is full."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the socket after what has been written."""
        ...

    def ping(self, answered: Callable[[], None]) -> bool:
        """Ask the peer for a sign of life: `answered` is called at whatever it sends next.

        Returns:
            False if it cannot be asked now.
        """
        ...

    def drop(self) -> None:
        """Give the socket up without a word, with what it has not sent."""
        ...

    def pause_reading(self) -> None:
        """Read nothing more from the socket for now."""
        ...

    def resume_reading(self) -> None:
        """Read from it again."""
        ...


class Outbox:
    """The frames that wait for one session's socket; see the head of the file."""

    __slots__ = (
        "_budget",
        "_bytes",
        "_limit",
        "_link",
        "_overflow",
        "_relief",
        "_stores",
        "_unsent",
        "_waiting",
        "frames",
        "frames_bytes",
        "has_gap",
        "holders",
    )

    def __init__(self, limit: int, stores: bool, overflow: Callable[[], None]) -> None:
        self.frames = 0  # taken since it was made, and their bytes
        self.frames_bytes = 0
        self.has_gap = False
        self.holders: tuple[str, ...] = ()
        self._budget: QueueBudget | None = None
        self._limit = limit
        self._stores = stores
        self._overflow = overflow
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._unsent = 0
        self._link: Link | None = None
        self._relief: list[Callable[[], None]] = []

    @property
    def waiting_bytes(self) -> int:
        """What waits here, and in a socket that is full."""
        return self._bytes + self._unsent

    def put(self, frame: bytes) -> DeliveryResult:
        """Write or keep one frame. Never waits."""
        link = self._link
        if link is not None and not link.is_paused and not self._waiting:
            link.write(frame)
            self.frames += 1
            self.frames_bytes += len(frame)
            return _WRITTEN
        if link is None and not self._stores:
            return DeliveryResult.DROPPED
        size = len(frame) + _OVERHEAD
        if self._bytes + size > self._limit or not self._take(size):
            self.has_gap = True
            if link is not None:
                self._overflow()
            return DeliveryResult.DROPPED
        self._waiting.append(frame)
        self._bytes += size
        self.frames += 1
        self.frames_bytes += len(frame)
        if link is None:
            return DeliveryResult.QUEUED
        return DeliveryResult.BEHIND if self.is_behind else DeliveryResult.WRITTEN

    @property
    def is_behind(self) -> bool:
        """Whether more waits than a quarter of the limit."""
        return self._bytes > self._limit // 4

    def charge_to(self, budget: QueueBudget, holders: tuple[str, ...]) -> None:
        """Who is behind the session: what waits counts towards what they may have together."""
        self._budget = budget
        budget.charge(self, holders)

    def give_up(self) -> None:
        """Its room is needed by others: what waits is lost, and its session told so."""
        self._refused()
        self.clear()
        self._sent()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back, once, when half of that is left, or the socket is gone."""
        self._relief.append(callback)

    def attach(self, link: Link) -> None:
        """Write to this socket from now on, first what has been waiting."""
        self._link = link
        link.on_pause = self._blocked
        link.on_resume = self._resumed
        if link.is_paused:
            self._blocked()
        self._flush()

    def detach(self) -> None:
        """The socket is gone; keep what comes."""
        self._link = None
        self._sent()
        self._relieve()

    def take(self) -> bytes | None:
        """Take the oldest frame that waits out of the outbox; None if none does."""
        if not self._waiting:
            return None
        frame = self._waiting.popleft()
        self._give(len(frame) + _OVERHEAD)
        return frame

    def put_back(self, frames: Iterable[bytes]) -> None:
        """Keep what a socket that is gone took and never sent, before all that waits."""
        for frame in reversed(list(frames)):
            size = len(frame) + _OVERHEAD
            if not self._stores or not self._take(size):
                self.has_gap = True
                return
            self._waiting.appendleft(frame)
            self._bytes += size

    def clear(self) -> None:
        """Forget what is waiting."""
        self._waiting.clear()
        self._give(self._bytes)
        self._relieve()

    def _take(self, size: int) -> bool:
        return self._budget is None or self._budget.take(self, size)

    def _give(self, size: int) -> None:
        self._bytes -= size
        if self._budget is not None and size:
            self._budget.give(self, size)

    def _blocked(self) -> None:
        """The socket takes no more: what it has not sent counts, or it is ended."""
        size = self._link.unsent_bytes - self._unsent if self._link is not None else 0
        if size <= 0:
            return
        if self._take(size):
            self._unsent += size
        else:
            self._refused()

    def _refused(self) -> None:
        """There is no room for what waits: a socket that holds some of it goes at once."""
        link = self._link
        self.has_gap = True
        self._overflow()
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
        if self._bytes <= self._limit // 8:
            self._relieve()

    def _relieve(self) -> None:
        callbacks, self._relief = self._relief, []
        for callback in callbacks:
            with FAULTS.kept_to("sender"):
                callback()

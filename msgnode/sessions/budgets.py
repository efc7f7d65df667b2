"""Limits the memory that the sessions of one source address or one subject use together.

QueueBudget    bytes queued in outboxes. Frames beyond a holder's own limit are dropped. When the
               node's total is reached, the holder of most bytes loses its oldest queues; if that is
               the one who needs room, its frame is dropped instead. Either way the session is told
               of a gap, and an alarm is raised.
AnswerBudget   pending answers (mostly commits). A source over its limit, or over an even share when
               the node's total is reached, is not read until it is down to half of that.

The limits of single sessions and connections apply in addition. An IPv6 source is its /64.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker
from msgnode.core.rates import source_of

MAX_PENDING_PER_SOURCE = 4_096
MAX_PENDING = 16_384
"""Answers that a worker owes: more are never made faster, and each keeps its request in memory."""
TELLS_AGAIN = 60.0
_TOLD_AT_MOST = 1_000
_CLEARED = 16
"""The share of the total that is freed at once: one part in this many."""


class Queue(Protocol):
    """An outbox, as its budget sees it."""

    holders: tuple[str, ...]

    @property
    def waiting_bytes(self) -> int:
        """The queued bytes, which count towards the budgets."""
        ...

    def give_up(self) -> None:
        """Discard what is queued; the reader is told of the gap."""
        ...


def source(address: str) -> str:
    """The budget holder for a network address.

    >>> source("192.0.2.1"), source("2001:db8::1"), source("")
    ('source 192.0.2.1', 'source 2001:db8::/64', 'source unknown')
    """
    return f"source {source_of(address)}"


def holders(speaker: Speaker) -> tuple[str, ...]:
    """The budget holders of a session's queue: its source and, if known, its subject."""
    identity = speaker.identity
    who = () if identity is None else (f"subject {identity.issuer} {identity.subject}",)
    return (source(speaker.remote_address), *who)


class _Holder:
    __slots__ = ("bytes", "name", "queues")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.queues: dict[Queue, None] = {}  # oldest first


class QueueBudget:
    """One per worker. `tell(holder, text)` is called at most once a minute for each holder."""

    def __init__(self, per_holder: int, total: int, tell: Callable[[str, str], None]) -> None:
        self.bytes = 0
        self.dropped = 0
        self._per_holder = per_holder
        self._total = total
        self._tell = tell
        self._holders: dict[str, _Holder] = {}
        self._told: dict[str, float] = {}

    def take(self, queue: Queue, size: int) -> bool:
        """Count more bytes in a queue; False, and nothing counted, if there is no room."""
        for name in queue.holders:
            held = self._holders.get(name)
            if (held.bytes if held else 0) + size > self._per_holder:
                self._refuse(name, "has as many bytes queued as it may have")
                return False
        if self.bytes + size > self._total and not self._make_room(queue, size):
            return False
        self._count(queue, size)
        return True

    def give(self, queue: Queue, size: int) -> None:
        """Stop counting bytes that have left a queue; call it after the queue's own count."""
        self.bytes -= size
        for name in queue.holders:
            held = self._holders[name]
            held.bytes -= size
            if not queue.waiting_bytes:
                held.queues.pop(queue, None)
            if not held.bytes:
                del self._holders[name]

    def charge(self, queue: Queue, holders: tuple[str, ...]) -> None:
        """Change the holders of a queue; its content is charged to the new ones."""
        size = queue.waiting_bytes
        if size and queue.holders:
            self.bytes -= size
            for name in queue.holders:
                held = self._holders[name]
                held.bytes -= size
                held.queues.pop(queue, None)
                if not held.bytes:
                    del self._holders[name]
        queue.holders = holders
        if size:
            self._count(queue, size)

    def _count(self, queue: Queue, size: int) -> None:
        self.bytes += size
        for name in queue.holders:
            held = self._holders.get(name)
            if held is None:
                held = self._holders[name] = _Holder(name)
            held.bytes += size
            held.queues[queue] = None

    def _make_room(self, queue: Queue, size: int) -> bool:
        """Free room at the cost of the largest holder; False if that is the queue's own."""
        while self.bytes + size > self._total:
            able = (each for each in self._holders.values() if each.queues)
            largest = max(able, key=lambda each: each.bytes, default=None)
            if largest is None:
                return False
            if largest.name in queue.holders:
                self._refuse(largest.name, "holds most of a queue that is full")
                return False
            self._refuse(largest.name, "held most of a queue that is full, and lost its oldest")
            enough = self.bytes - max(size, self._total // _CLEARED)
            while largest.queues and self.bytes > enough:
                oldest = next(iter(largest.queues))
                with FAULTS.kept_to("session"):
                    oldest.give_up()
                largest.queues.pop(oldest, None)
        return True

    def _refuse(self, name: str, why: str) -> None:
        self.dropped += 1
        now = monotonic()
        if self._told.get(name, -TELLS_AGAIN) > now - TELLS_AGAIN:
            return
        if len(self._told) >= _TOLD_AT_MOST:
            self._told.clear()
        self._told[name] = now
        self._tell(name, f"{name} {why}: messages to its sessions are dropped, with a gap.")


class AnswerBudget:
    """One per worker. A paused source resumes through `when_less`."""

    def __init__(self, per_source: int = MAX_PENDING_PER_SOURCE, total: int = MAX_PENDING) -> None:
        self.pending = 0
        self.least = max(1, min(per_source, total))
        """No source is full while fewer answers than this are pending in total."""
        self._per_source = per_source
        self._total = total
        self._of: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    def count(self, holder: str, change: int) -> None:
        """Change the number of pending answers of a source."""
        self.pending += change
        left = self._of.get(holder, 0) + change
        if left:
            self._of[holder] = left
        else:
            self._of.pop(holder, None)
        if change < 0 and self._waiting and left <= self._limit() // 2:
            self._release(holder)

    def is_full(self, holder: str) -> bool:
        """Whether a source has as many pending answers as it may have."""
        pending = self._of.get(holder, 0)
        return pending > 0 and pending >= self._limit()

    def when_less(self, holder: str, callback: Callable[[], None]) -> None:
        """Call back once, when a full source is down to half of its limit."""
        self._waiting.setdefault(holder, deque()).append(callback)

    def _limit(self) -> int:
        if self.pending < self._total:
            return self._per_source
        return min(self._per_source, max(1, self._total // max(1, len(self._of))))

    def _release(self, holder: str) -> None:
        for callback in self._waiting.pop(holder, ()):
            callback()

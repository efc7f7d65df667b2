"""The events for a device, numbered, and kept until the device confirms them. Pure.

HTTP has no acknowledgement, so an event is kept after it was sent: the next `after` (a poll) or
`Last-Event-ID` (a stream) confirms it and all before it. An event's id is `<epoch>-<number>`; the
epoch is this buffer's, so that ids of an earlier buffer can be told apart.

Guarantee: events are in order; each is kept until it is confirmed, or until room is needed and it
was sent once. An event that was never sent is not dropped for another one. A loss is an event as
well, a gap: it has a number, and is repeated until it is confirmed.
"""

from __future__ import annotations

import secrets
from collections import deque
from itertools import islice
from typing import NamedTuple

import msgspec

from msgnode.sessions.budgets import QueueBudget

OVERHEAD = 96
"""Memory of an event besides its text, in bytes."""
GAP = b""
"""The mark for a loss among the events."""
HISTORY_BYTES = 64 * 1024
"""Of sent events that go along with a session that changes its worker."""


class EventId(NamedTuple):
    """The id of an event; `str()` is its wire format."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"


def read_id(text: str) -> EventId | None:
    """Read an event's id; None if `text` is none.

    >>> read_id("3f9c-12"), read_id("nonsense")
    (EventId(epoch='3f9c', number=12), None)
    """
    epoch, dash, number = text.rpartition("-")
    if not dash or not epoch or len(text) > 64 or not (number.isascii() and number.isdigit()):
        return None
    return EventId(epoch, int(number))


class _History(msgspec.Struct):
    """The state for another worker to continue; `first` is the number of the first of `sent`."""

    epoch: str
    first: int
    sent: list[bytes]
    has_gap: bool = False


class EventBuffer:
    """The events of one device.

    Args:
        limit: most bytes, including those kept for a repetition.
        budget: the budget of the device's source; None for none.

    `has_gap`: something was lost, and the loss has no number yet.
    """

    def __init__(self, limit: int, budget: QueueBudget | None) -> None:
        self.epoch = secrets.token_hex(4)
        self.has_gap = False
        self.holders: tuple[str, ...] = ()
        self.waiting_bytes = 0
        self.unsent_bytes = 0
        self._limit = limit
        self._budget = budget
        self._events: deque[bytes] = deque()
        self._first = 1  # the number of _events[0]
        self._next = 1  # the number of the next event to send
        self._confirmed = 0  # the number up to which the device has said that it has them

    @property
    def last_sent(self) -> EventId:
        """The id of the newest event that was sent; number 0 before the first."""
        return EventId(self.epoch, self._next - 1)

    @property
    def has_unsent(self) -> bool:
        """Whether an event waits to be sent."""
        return self._next < self._first + len(self._events)

    @property
    def _sent_count(self) -> int:
        return self._next - self._first

    def charge_to(self, holders: tuple[str, ...]) -> None:
        """Set the budget holders of the device."""
        if self._budget is not None:
            self._budget.charge(self, holders)

    def append(self, frame: bytes) -> None:
        """Keep one more event. It is lost, and the gap noted, if there is no room for it."""
        size = len(frame) + OVERHEAD
        self._forget_sent(self.waiting_bytes + size - self._limit)
        if self._budget is not None and not self._budget.take(self, size):
            self._forget_sent(self.waiting_bytes)
            if not self._budget.take(self, size):
                self.has_gap = True
                return
        self._events.append(frame)
        self.waiting_bytes += size
        self.unsent_bytes += size

    def take(self, at_most: int, max_bytes: int) -> list[tuple[EventId, bytes]]:
        """The next events to send, within limits of number and bytes, but at least one."""
        taken: list[tuple[EventId, bytes]] = []
        size = 0
        while self.has_unsent and len(taken) < at_most:
            frame = self._events[self._next - self._first]
            if frame == GAP or (taken and size + len(frame) > max_bytes):
                break
            taken.append((EventId(self.epoch, self._next), frame))
            size += len(frame)
            self.unsent_bytes -= len(frame) + OVERHEAD
            self._next += 1
        self._forget_sent(self.waiting_bytes - self._limit)
        return taken

    def give_back(self) -> list[bytes]:
        """Remove and return unsent events, in order; their numbers are reused."""
        frames: list[bytes] = []
        while self.has_unsent:
            frame = self._events.pop()
            if frame == GAP:
                self.has_gap = True
            else:
                frames.append(frame)
        size = self.unsent_bytes
        self.unsent_bytes = 0
        self.waiting_bytes -= size
        if self._budget is not None and size:
            self._budget.give(self, size)
        return frames[::-1]

    def pack(self) -> bytes:
        """Epoch, numbers, and the newest of the sent events, for another worker."""
        sent: deque[bytes] = deque()
        room = HISTORY_BYTES
        for frame in islice(reversed(self._events), len(self._events) - self._sent_count, None):
            room -= len(frame) + OVERHEAD
            if room < 0:
                break
            sent.appendleft(frame)
        first = self._next - len(sent)
        return msgspec.msgpack.encode(_History(self.epoch, first, list(sent), self.has_gap))

    def unpack(self, packed: bytes) -> None:
        """Go on as the buffer that was packed, which this one replaces. Raises DecodeError."""
        history = msgspec.msgpack.decode(packed, type=_History)
        self.clear()
        self.epoch = history.epoch
        self._first = self._next = history.first
        self._confirmed = history.first - 1
        for frame in history.sent:
            self.append(frame)
        self._go_to(self._first + len(self._events))
        if len(self._events) < len(history.sent):  # no room: what is there is no history
            self.clear()
            self._first = self._next = history.first + len(history.sent)
        self.has_gap = history.has_gap

    def rewind(self) -> None:
        """Continue with the oldest unconfirmed event; with a gap if it was dropped."""
        if self._first > self._confirmed + 1:
            self.has_gap = True
            self._confirmed = self._first - 1
        self._go_to(self._first)

    def resume(self, after: EventId | None, confirms: bool = True) -> None:
        """Go on behind this event; None: with what was not sent.

        A gap is noted where the event is not this buffer's, or what followed it is gone. If it
        `confirms`, the device has all up to this event, and is not given it again.
        """
        if after is None:
            return
        end = self._first + len(self._events)
        if after.epoch != self.epoch or not self._first - 1 <= after.number < end:
            self.has_gap = True
            self._go_to(self._first)
            return
        self._go_to(after.number + 1)
        if confirms:
            self._confirmed = max(self._confirmed, after.number)
            self._forget_sent(self.waiting_bytes, up_to=after.number)

    def take_gap(self) -> bool:
        """Whether something was lost before the next event, which must be sent first."""
        if self.has_gap:
            self.has_gap = False
            if not self._is_at_gap and not self._insert_gap():
                return True  # there is no room for more than to say it once
        if not self._is_at_gap:
            return False
        self._go_to(self._next + 1)
        self._forget_sent(self.waiting_bytes - self._limit)
        return True

    def give_up(self) -> None:
        """Its room is needed by others (see QueueBudget)."""
        self.has_gap = True
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        size, self.waiting_bytes, self.unsent_bytes = self.waiting_bytes, 0, 0
        self._first += len(self._events)
        self._next = self._first
        self._events.clear()
        if self._budget is not None and size:
            self._budget.give(self, size)

    @property
    def _is_at_gap(self) -> bool:
        return self.has_unsent and self._events[self._next - self._first] == GAP

    def _insert_gap(self) -> bool:
        self._forget_sent(self.waiting_bytes + OVERHEAD - self._limit)
        if self._budget is not None and not self._budget.take(self, OVERHEAD):
            return False
        self._events.insert(self._next - self._first, GAP)
        self.waiting_bytes += OVERHEAD
        self.unsent_bytes += OVERHEAD
        return True

    def _go_to(self, number: int) -> None:
        """The next event to send is this one."""
        while self._next > number:
            self._next -= 1
            self.unsent_bytes += len(self._events[self._next - self._first]) + OVERHEAD
        while self._next < number:
            self.unsent_bytes -= len(self._events[self._next - self._first]) + OVERHEAD
            self._next += 1

    def _forget_sent(self, size: int, up_to: int | None = None) -> None:
        """Drop the oldest sent events, until so many bytes are free."""
        last = self._next - 1 if up_to is None else up_to
        freed = 0
        while freed < size and self._first <= last:
            freed += len(self._events.popleft()) + OVERHEAD
            self._first += 1
        self.waiting_bytes -= freed
        if self._budget is not None and freed:
            self._budget.give(self, freed)

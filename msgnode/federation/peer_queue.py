"""What waits for a peer: in the order it came, for a limited time, within bounds. Pure.

    request     10 s, then whoever asked is told 504
    response    15 s
    change      60 s: an update of a data object
    ephemeral   60 s, the newest for an address only: status and registration events

When there is no room for a message the oldest ephemeral ones make room, then it is refused.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from msgnode.core import addresses
from msgnode.core.messages import Message

_OVERHEAD = 256  # bytes of memory that a waiting message costs besides its text


class MessageClass(StrEnum):
    """What a message is, for how long it may wait."""

    REQUEST = "request"
    RESPONSE = "response"
    CHANGE = "change"
    EPHEMERAL = "ephemeral"


SECONDS = {
    MessageClass.REQUEST: 10.0,
    MessageClass.RESPONSE: 15.0,
    MessageClass.CHANGE: 60.0,
    MessageClass.EPHEMERAL: 60.0,
}


def class_of(message: Message) -> MessageClass:
    """The class of a message for one recipient."""
    if message.is_response:
        return MessageClass.RESPONSE
    to = message.recipients[0]
    if message.type == "update" and to.endswith(("/status", "/registration")):
        return MessageClass.EPHEMERAL
    if message.type == "update" and addresses.is_event(to):
        return MessageClass.CHANGE
    return MessageClass.REQUEST


class Waiting(NamedTuple):
    """A message that waits; `until` is a moment of the queue's clock."""

    message: Message
    class_: MessageClass
    since: float
    until: float

    @property
    def size(self) -> int:
        return len(self.message.frame) + _OVERHEAD


class PeerQueue:
    """The messages for one peer.

    Args:
        max_messages: that wait.
        max_bytes: of all that wait.
        clock: seconds that only grow.
    """

    def __init__(
        self, max_messages: int, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.id = uuid.uuid4().hex
        self.bytes = 0
        self.dropped = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._clock = clock
        self._number = 0
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()
        self._ephemeral: OrderedDict[str, int] = OrderedDict()  # address -> number

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest_seconds(self) -> float:
        """How long the first of them has waited."""
        first = next(iter(self._waiting.values()), None)
        return 0.0 if first is None else max(0.0, self._clock() - first.since)

    def put(self, message: Message) -> bool:
        """Have a message wait; whether there is room for it."""
        class_, now = class_of(message), self._clock()
        one = Waiting(message, class_, now, now + SECONDS[class_])
        if class_ is MessageClass.EPHEMERAL:
            before = self._ephemeral.pop(message.recipients[0], 0)
            if before:
                self._remove(before)
        while self._ephemeral and not self._has_room(one):
            _, oldest = self._ephemeral.popitem(last=False)
            self._remove(oldest)
            self.dropped += 1
        if not self._has_room(one):
            self.dropped += 1
            return False
        self._number += 1
        self._waiting[self._number] = one
        self.bytes += one.size
        if class_ is MessageClass.EPHEMERAL:
            self._ephemeral[message.recipients[0]] = self._number
        return True

    def take(self) -> Message | None:
        """The first that waits; those whose time is over were taken out by `expire`."""
        if not self._waiting:
            return None
        return self._remove(next(iter(self._waiting))).message

    def expire(self) -> list[Waiting]:
        """Take out those whose time is over."""
        now = self._clock()
        over = [number for number, one in self._waiting.items() if one.until <= now]
        self.dropped += len(over)
        return [self._remove(number) for number in over]

    def longest(self, seconds: float, at_most: int) -> dict[int, Waiting]:
        """Those that have waited so long, by number, the first ones first."""
        before = self._clock() - seconds
        first = islice(self._waiting.items(), at_most)
        return {number: one for number, one in first if one.since <= before}

    def left(self, one: Waiting) -> float:
        """Seconds until the time of a message is over."""
        return one.until - self._clock()

    def renew(self, numbers: Collection[int]) -> int:
        """Give these their whole time again, in their place; how many are still here."""
        now, found = self._clock(), 0
        for number in numbers:
            one = self._waiting.get(number)
            if one is not None:
                self._waiting[number] = one._replace(until=now + SECONDS[one.class_])
                found += 1
        return found

    def remove(self, numbers: Collection[int]) -> list[Waiting]:
        """Take these out, as far as they are still here."""
        found = [self._remove(number) for number in numbers if number in self._waiting]
        self.dropped += len(found)
        return found

    def clear(self) -> list[Waiting]:
        """Take out all."""
        everything = list(self._waiting.values())
        self.dropped += len(everything)
        self._waiting.clear()
        self._ephemeral.clear()
        self.bytes = 0
        return everything

    def _has_room(self, one: Waiting) -> bool:
        return len(self._waiting) < self._max_messages and self.bytes + one.size <= self._max_bytes

    def _remove(self, number: int) -> Waiting:
        one = self._waiting.pop(number)
        self.bytes -= one.size
        if one.class_ is MessageClass.EPHEMERAL:
            to = one.message.recipients[0]
            if self._ephemeral.get(to) == number:
                del self._ephemeral[to]
        return one

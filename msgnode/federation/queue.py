"""The queue of messages for a peer: in order, with time limits, bounded. Pure.

    request     10 s, then its sender is answered 504
    stored      a request with `store: true`: hours, also kept in the database
    response    15 s
    change      60 s: an update of a data object
    ephemeral   60 s, only the newest per address: status and registration events

When there is no room the oldest ephemeral messages are dropped, then the new message is refused. A
message that was sent and comes back goes to the head of the queue, whatever room there is.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from itertools import islice

import msgspec
from msgspec.structs import replace

from msgnode.core import addresses
from msgnode.core.bounded_cache import BoundedCache
from msgnode.core.envelope import EMPTY, RAW_FIELDS
from msgnode.core.messages import Message

_OVERHEAD = 256  # memory of a queued message besides its text, in bytes


class MessageClass(StrEnum):
    """The class of a message, which sets how long it may wait."""

    REQUEST = "request"
    STORED = "stored"
    RESPONSE = "response"
    CHANGE = "change"
    EPHEMERAL = "ephemeral"


REQUEST, STORED, RESPONSE, CHANGE, EPHEMERAL = MessageClass
"""By these names, because Python 3.11 takes long to look up a member of an Enum."""
SECONDS = {REQUEST: 10.0, STORED: 86_400.0, RESPONSE: 15.0, CHANGE: 60.0, EPHEMERAL: 60.0}


def class_of(message: Message) -> MessageClass:
    """The class of a message for one recipient."""
    if message.is_response:
        return RESPONSE
    class_ = _CLASS_OF_UPDATE[message.recipients[0]] if message.type == "update" else REQUEST
    if class_ is not REQUEST:
        return class_
    return STORED if _is_to_be_stored(message) else REQUEST


def _class_of_update(to: str) -> MessageClass:
    if to.endswith(("/status", "/registration")):
        return EPHEMERAL
    return CHANGE if addresses.is_event(to) else REQUEST


_CLASS_OF_UPDATE = BoundedCache(_class_of_update, 1024 * 1024, lambda _: 0)


def _is_to_be_stored(message: Message) -> bool:
    if b'"store"' not in message.body:
        return False
    return bytes(RAW_FIELDS.decode(message.body).get("store", EMPTY)) == b"true"


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A queued message; `since` and `until` are times of the queue's clock.

    For one that came back to the queue, `since` is then. `key` is that of its row if it is stored;
    `attempts` counts the times that the connection to the peer ended at once after it.
    """

    message: Message
    class_: MessageClass
    since: float
    until: float
    key: str = ""
    attempts: int = 0

    @property
    def size(self) -> int:
        """The bytes that it counts for in the queue's limit."""
        return len(self.message.frame) + _OVERHEAD


class PeerQueue:
    """The messages for one peer.

    `due` is when `expire` may have something to do next, or earlier.

    Args:
        max_messages: most queued messages.
        max_bytes: most bytes of all of them.
        clock: a monotonic clock, in seconds.
        stored_seconds: how long a stored message waits.
    """

    def __init__(
        self,
        max_messages: int,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        stored_seconds: float = SECONDS[STORED],
    ) -> None:
        self.id = uuid.uuid4().hex
        self.bytes = 0
        self.dropped = 0
        self.due = math.inf
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._clock = clock
        self._seconds = {**SECONDS, STORED: stored_seconds}
        self._number = 0
        self._waiting: OrderedDict[int, Waiting] = OrderedDict()
        self._ephemeral: OrderedDict[str, int] = OrderedDict()  # address -> number
        self._stored: dict[str, int] = {}  # key -> number

    def __len__(self) -> int:
        return len(self._waiting)

    def number(self) -> int:
        """A number that no message of this queue has had."""
        self._number += 1
        return self._number

    @property
    def oldest_seconds(self) -> float:
        """How long the first message has waited."""
        first = self.first()
        return 0.0 if first is None else max(0.0, self._clock() - first.since)

    def put(self, message: Message, key: str = "") -> bool:
        """Queue a message, with the key of its row if it is stored; False if there is no room."""
        class_ = class_of(message)
        one = self.waiting(message, class_, key)
        if class_ is EPHEMERAL:
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
        self._add(one)
        if class_ is EPHEMERAL:
            self._ephemeral[message.recipients[0]] = self._number
        return True

    def waiting(self, message: Message, class_: MessageClass, key: str = "") -> Waiting:
        """A message of a class with its times, not queued."""
        now = self._clock()
        return Waiting(message, class_, now, now + self._seconds[class_], key)

    def put_back(self, message: Message, key: str, age: float, left: float) -> None:
        """Queue a stored message at the end, with the time it has already waited."""
        now = self._clock()
        self._add(Waiting(message, STORED, now - age, now + left, key))

    def put_first(self, several: Sequence[Waiting]) -> None:
        """Put these at the head of the queue, in this order."""
        for one in reversed(several):
            self._add(one)
            self._waiting.move_to_end(self._number, last=False)

    def first(self) -> Waiting | None:
        """The first message."""
        return next(iter(self._waiting.values()), None)

    def take(self, untried: bool = False) -> Waiting | None:
        """Remove and return the first message, or the first that was not tried yet.

        `expire` has removed the expired ones.
        """
        for number, one in self._waiting.items():
            if not (untried and one.attempts):
                return self._remove(number)
        return None

    def take_stored(self, key: str) -> Waiting | None:
        """Remove and return a stored message, if it still waits."""
        number = self._stored.get(key)
        return None if number is None else self._remove(number)

    def stored(self, key: str) -> Waiting | None:
        """A stored message, if it still waits."""
        number = self._stored.get(key)
        return None if number is None else self._waiting[number]

    def expire(self) -> list[Waiting]:
        """Remove and return expired messages."""
        now = self._clock()
        if now < self.due:
            return []
        over = [number for number, one in self._waiting.items() if one.until <= now]
        self.dropped += len(over)
        expired = [self._remove(number) for number in over]
        self.due = min((one.until for one in self._waiting.values()), default=math.inf)
        return expired

    def longest(self, seconds: float, at_most: int) -> dict[int, Waiting]:
        """The messages that have waited so long, by number, the oldest first."""
        before = self._clock() - seconds
        first = islice(self._waiting.items(), at_most)
        return {number: one for number, one in first if one.since <= before}

    def left(self, one: Waiting) -> float:
        """Seconds until a message expires."""
        return one.until - self._clock()

    def renew(self, numbers: Collection[int]) -> int:
        """Give these their full time again, in place; return how many are still here."""
        now, found = self._clock(), 0
        for number in numbers:
            one = self._waiting.get(number)
            if one is not None:
                self._waiting[number] = replace(one, until=now + self._seconds[one.class_])
                found += 1
        return found

    def remove(self, numbers: Collection[int]) -> list[Waiting]:
        """Remove and return those of these that are still here."""
        found = [self._remove(number) for number in numbers if number in self._waiting]
        self.dropped += len(found)
        return found

    def clear(self) -> list[Waiting]:
        """Remove and return all."""
        everything = list(self._waiting.values())
        self.dropped += len(everything)
        self._waiting.clear()
        self._ephemeral.clear()
        self._stored.clear()
        self.bytes = 0
        self.due = math.inf
        return everything

    def _has_room(self, one: Waiting) -> bool:
        return len(self._waiting) < self._max_messages and self.bytes + one.size <= self._max_bytes

    def _add(self, one: Waiting) -> None:
        self._number += 1
        self._waiting[self._number] = one
        self.bytes += one.size
        self.due = min(self.due, one.until)
        if one.key:
            self._stored[one.key] = self._number

    def _remove(self, number: int) -> Waiting:
        one = self._waiting.pop(number)
        self.bytes -= one.size
        if not self._waiting:
            self.due = math.inf
        self._stored.pop(one.key, None)
        if one.class_ is EPHEMERAL:
            to = one.message.recipients[0]
            if self._ephemeral.get(to) == number:
                del self._ephemeral[to]
        return one

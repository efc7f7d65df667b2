"""The messages between this node and one peer: queue, sent requests, inbound checks.

Rules
- Frames wait in the peer's queue. A request that expires there is answered 504; one for which there
  is no room, 503. Once it was sent, only the peer answers it, unless the stub, the peer's node or
  the session there ends: then it is answered 503. A lost socket alone ends none.
- A stored request (stored_messages.py) waits for hours. It returns to the head of the queue when
  the stub, the session there or only its socket ends before the response. If that happens ATTEMPTS
  times, each within SOON seconds of sending it, it is set aside, and its sender is answered 502.
  After the first time, such requests are sent one by one, with at most SOON seconds for each, so
  that the others are not blamed; all other messages pass them meanwhile.
- A request that the peer has not answered within ASKED_SECONDS is answered 504 and forgotten; a
  stored one is set aside, and its sender, who was told that it is stored, is told that. Where a
  peer does not answer unknown addresses it is 504 after SILENT_SECONDS; a late response passes.
- A response is carried if its request was sent, and it comes from where that was sent. Everything
  else is checked by crossing.py; refused messages are counted and change nothing.
- Messages of a peer that claim to be from this domain are counted separately: as `returned` if this
  node has sent them there, else as `spoofed`.
- A stub that has had nothing to do for long enough is needed no more (Idleness).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from msgnode.core import addresses, messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import (
    BadGateway,
    BadMessage,
    Forbidden,
    GatewayTimeout,
    NodeError,
    Unavailable,
)
from msgnode.core.messages import Message
from msgnode.sandbox import pipe
from msgnode.sessions.frame_connection import is_final

from . import crossing
from .held_subscriptions import HeldSubscriptions
from .queue import REQUEST, STORED, PeerQueue, Waiting, class_of

ASKED_SECONDS = 600.0
MAX_ASKED = 20_000
ATTEMPTS = 3
SILENT_SECONDS, LEAST_SILENT_SECONDS = 14.0, 4.0
"""Seconds since a request came, and least since it was sent, after which a peer that answers
nothing for unknown addresses has not got it: buses of the field wait for 15 s.
"""
SOON = 5.0
"""If the connection ends within this many seconds after a stored message was sent, the message is
blamed: enough time to find a stub that loops.
"""


class NotCarried(Exception):
    """A message of the peer is refused; the text says why."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request that was sent, when, and its number in the queue's numbering."""

    one: Waiting
    at: float
    number: int


class Store(Protocol):
    """Stores messages for one peer outside memory. Never blocks."""

    def keep(self, message: Message) -> str:
        """Store a message; return the key of its row, "" if there is no room."""
        ...

    def done(self, key: str) -> None:
        """Remove a message that is no longer needed."""
        ...

    def set_aside(self, one: Waiting, reason: str) -> None:
        """Set aside a message that could not be delivered, for a person to look at."""
        ...

    def answering(self, message: Message) -> None:
        """Note that a response may come, perhaps long after the request."""
        ...


@dataclass(slots=True)
class PeerCounters:
    """What has passed between this node and a peer, and what has not."""

    sent: int = 0
    received: int = 0
    refused: int = 0  # messages in either direction that were refused
    expired: int = 0
    full: int = 0
    failed: int = 0  # requests whose connection or session ended before a response
    unanswered: int = 0  # requests without a response within the time limit
    discarded: int = 0  # by an operator
    set_aside: int = 0  # stored messages that could not be delivered
    lost: int = 0  # frames the stub wrote to a lost socket
    restarts: int = 0
    round_trip: float = 0.0  # of the last response, in seconds


@dataclass(slots=True)
class Way:
    """One direction: the last success and the last failure. Seconds of UTC."""

    passed_at: float = 0.0
    failed_at: float = 0.0
    error: str = ""

    def passed(self) -> None:
        """Note a success."""
        self.passed_at = time.time()

    def failed(self, error: str) -> None:
        """Note a failure, with its reason."""
        self.failed_at, self.error = time.time(), error[: 4 * pipe.SHOWN]


class PeerExchange:
    """One instance per peer that this worker serves.

    Args:
        own: this node's domain.
        peer: the peer's domain.
        queue: the queue of messages for it.
        answer: carries a response in place of the peer.
        clock: a monotonic clock, in seconds.
        store: the peer's stored messages; without it, they are as other requests.
        answers_all: whether the peer's node answers requests to addresses that nobody has there.
        on_send: called with the sender of a message before it is passed to the stub.
    """

    def __init__(
        self,
        own: str,
        peer: str,
        queue: PeerQueue,
        answer: Callable[[bytes], None],
        clock: Callable[[], float] = time.monotonic,
        store: Store | None = None,
        answers_all: bool = True,
        on_send: Callable[[str], None] | None = None,
    ) -> None:
        self.counters = PeerCounters()
        self.out, self.into = Way(), Way()
        self.returned = self.spoofed = 0
        self.queue = queue
        self._own = own
        self._peer = peer
        self._answer = answer
        self._clock = clock
        self._asked: OrderedDict[tuple[str, str], Asked] = OrderedDict()
        self._store = store
        self._suspect: tuple[str, str] | None = None  # the one that was sent alone
        self._unsaid: set[str] = set()  # keys of stored ones sent before they were written
        self._again: dict[tuple[str, str], str] = {}  # sent before -> key of its row
        self._answers_all = answers_all
        self._on_send = on_send
        self._silent: list[tuple[float, int, tuple[str, str]]] = []  # (until, number, key), a heap
        self._given_up: set[tuple[str, str]] = set()  # asked, and answered here meanwhile
        self._all_answered = asyncio.Event()
        self.moved()

    @property
    def is_busy(self) -> bool:
        """Whether something waits for the peer, or a response may still come."""
        return bool(self.queue or self._asked)

    def moved(self) -> None:
        """Note that something has passed, or that the peer was needed until now."""
        self.moved_at = self._clock()

    @property
    def due(self) -> float:
        """When `expire` has something to do next, or more may be taken."""
        if not self._asked and not self._silent:
            return self.queue.due
        first = next(iter(self._asked.values()), None)
        due = min(self.queue.due, first.at + ASKED_SECONDS) if first else self.queue.due
        if self._silent:
            due = min(due, self._silent[0][0])
        tried = self._asked.get(self._suspect) if self._suspect is not None else None
        return min(due, tried.at + SOON) if tried is not None else due

    async def answered(self) -> None:
        """Wait until no response of the peer is due."""
        while self._asked:
            self._all_answered.clear()
            await self._all_answered.wait()

    def awaited(self, seconds: float, at_most: int) -> dict[int, tuple[Waiting, float]]:
        """Requests sent so long ago without a response, by number, with the seconds since."""
        now = self._clock()
        first = islice(self._asked.values(), at_most)
        return {
            each.number: (each.one, now - each.at) for each in first if now - each.at >= seconds
        }

    # --- to the peer ------------------------------------------------------------------------------

    def put(self, message: Message) -> None:
        """Queue a message for the peer."""
        if fault := crossing.outgoing_fault(message, self._own):
            self.counters.refused += 1
            self._refuse(message, Forbidden(f"{fault}."))
            return
        store, key = self._store, ""
        if store is not None and class_of(message) is STORED:
            key = store.keep(message)
            if not key:
                self.counters.full += 1
                self._refuse(message, Unavailable(f"Too much is stored for {self._peer}."))
                return
        before = self.queue.dropped
        is_taken = self.queue.put(message, key)
        self.counters.full += self.queue.dropped - before  # lost to make room
        if not is_taken:
            self._refuse(message, Unavailable(f"Too much waits for {self._peer}."))
            self._done(key)

    def stored(self, key: str) -> None:
        """Note that a message was written; its sender is told once it waits."""
        one = self.queue.stored(key)
        if one is not None:
            self._say_stored(one.message)
        else:
            self._unsaid.add(key)

    def not_stored(self, key: str) -> None:
        """Note that a message could not be written: if it still waits, it is removed."""
        one = self.queue.take_stored(key)
        if one is not None:
            self.counters.failed += 1
            self._refuse(one.message, Unavailable("The message could not be stored: try again."))

    def take(self, by_link: bool = False) -> bytes | None:
        """Remove and return the next message in its form for the peer; it counts as sent."""
        message = self.take_message()
        return crossing.outgoing(message, by_link) if message is not None else None

    def take_message(self) -> Message | None:
        """Remove and return the next message as it came; it counts as sent."""
        one = self.queue.take(untried=self._is_trying())
        if one is None:
            return None
        if one.class_ is REQUEST or one.class_ is STORED:
            self._await_response(one)
        self._note_sent(one.message)
        return one.message

    def at_once(self, message: Message) -> bytes | None:
        """A message in its form for the link, if it need not be queued; it counts as sent."""
        class_, queue = class_of(message), self.queue
        # what waits has bytes, and to ask for them calls nothing
        if queue.bytes or class_ is STORED or crossing.outgoing_fault(message, self._own):
            return None
        if class_ is REQUEST:
            self._await_response(queue.waiting(message, class_))
        self._note_sent(message)
        return message.frame if message.is_unmarked else crossing.outgoing(message, by_link=True)

    def _await_response(self, one: Waiting) -> None:
        """Remember a request that is sent."""
        key = (one.message.sender, one.message.id_key)
        before = self._asked.pop(key, None)
        if before is not None:
            self._done(before.one.key)  # of two with the same id only one is answered
        now = self._clock()
        asked = self._asked[key] = Asked(one, now, self.queue.number())
        if self._given_up:
            self._given_up.discard(key)
        if not (self._answers_all or one.key):
            until = max(one.since + SILENT_SECONDS, now + LEAST_SILENT_SECONDS)
            heappush(self._silent, (until, asked.number, key))
        if self._again:
            self._again.pop(key, None)
        if one.attempts:
            self._suspect = key
        if len(self._asked) > MAX_ASKED:
            self._forget_first(f"has left more than {MAX_ASKED} requests unanswered")

    def _note_sent(self, message: Message) -> None:
        self.counters.sent += 1
        self.moved_at = self._clock()
        self.out.passed_at = time.time()
        if self._on_send is not None:
            self._on_send(message.sender)

    def expire(self, ended: str = "") -> None:
        """Answer what has waited too long, forget old requests; `ended`: why the last stub did."""
        why = f": its stub ended, {ended}" if ended else ""
        text = f"{self._peer} could not be reached in time{why}."
        for one in self.queue.expire():
            self.moved()
            self.counters.expired += 1
            if one.key:
                self._set_aside(one, text)
            self._refuse(one.message, GatewayTimeout(text))
        now = self._clock()
        self._is_trying()
        while self._silent and (self._silent[0][0] <= now or self._is_over(*self._silent[0][1:])):
            self._answer_silence(*heappop(self._silent)[1:])
        before = now - ASKED_SECONDS
        while self._asked and next(iter(self._asked.values())).at <= before:
            self._forget_first(f"did not answer it within {ASKED_SECONDS:g} s")

    def discard(self, numbers: Collection[int] | None) -> None:
        """Remove these messages, or all, for an operator, and answer them."""
        found = self.queue.clear() if numbers is None else self.queue.remove(numbers)
        self.moved()
        for one in found:
            self.counters.discarded += 1
            text = f"An operator has taken it out of the queue for {self._peer}."
            self._refuse(one.message, Unavailable(text))
            self._done(one.key)

    def discard_for_good(self) -> None:
        """Discard everything, because the peer is removed: no answers, nothing stays stored."""
        self.fail_asked(f"{self._peer} was removed from this node.")
        self.discard(None)

    def fail_asked(self, text: str) -> None:
        """Answer 503 to sent requests: the stub, the node or the session there has ended.

        Stored ones go back to the head of the queue; what was answered 504 before stays so.
        """
        self.send_again(text)
        asked, self._asked = self._asked, OrderedDict()
        given_up, self._given_up = self._given_up, set()
        self._note_answered()
        for key, each in asked.items():
            if key not in given_up:
                self.counters.failed += 1
                if self._store is not None:  # they may have asked a session that has ended
                    self._store.answering(each.one.message)
                self._refuse(each.one.message, Unavailable(text))

    def send_again(self, text: str) -> None:
        """Queue stored messages again, at the head, that may have been lost with a socket.

        The others are left alone: the session may continue, and their response still come.
        """
        self._suspect = None
        stored = [(key, each) for key, each in self._asked.items() if each.one.key]
        self._again = {key: row for key, row in self._again.items() if self.queue.stored(row)}
        back: list[Waiting] = []
        for key, asked in stored:
            del self._asked[key]
            one, now = asked.one, self._clock()
            again = replace(one, attempts=one.attempts + (now - asked.at < SOON), since=now)
            if again.attempts >= ATTEMPTS:
                self._set_aside(again, text)
                self._refuse(one.message, BadGateway(f"It was tried {ATTEMPTS} times. {text}"))
            else:
                back.append(again)
                self._again[key] = one.key
        self.queue.put_first(back)
        self._note_answered()
        for one in back:
            if one.key in self._unsaid:
                self._unsaid.remove(one.key)
                self._say_stored(one.message)

    def fail_all(self, text: str) -> None:
        """Answer everything, because the peer is no longer served. Stored messages stay."""
        asked, self._asked = self._asked, OrderedDict()
        given_up, self._given_up = self._given_up, set()
        open_ = [each.one for key, each in asked.items() if key not in given_up]
        self.counters.failed += sum(not one.key for one in open_)
        for one in (*open_, *self.queue.clear()):
            if not one.key:
                self._refuse(one.message, Unavailable(text))

    def _is_trying(self) -> bool:
        """Whether the result of a retried message is still open."""
        suspect = self._asked.get(self._suspect) if self._suspect is not None else None
        if suspect is None or self._clock() - suspect.at >= SOON:
            self._suspect = None
        return self._suspect is not None

    def _forget_first(self, why: str) -> None:
        """Drop the oldest sent request, and answer it."""
        key, asked = self._asked.popitem(last=False)
        one = asked.one
        self._note_answered()
        if key in self._given_up:
            self._given_up.discard(key)
            return
        self.counters.unanswered += 1
        text = f"{self._peer} {why}."
        if one.key:
            self._set_aside(one, text)
        self._refuse(one.message, GatewayTimeout(text))

    def _answer_silence(self, number: int, key: tuple[str, str]) -> None:
        """Answer a request that the peer has said nothing about; a late response still passes."""
        if self._is_over(number, key):
            return
        self._given_up.add(key)
        self.counters.unanswered += 1
        text = f"The node of {self._peer} says nothing: probably nobody there has the address."
        self._refuse(self._asked[key].one.message, GatewayTimeout(text))

    def _is_over(self, number: int, key: tuple[str, str]) -> bool:
        """Whether a request is no more in silence: it was heard of, or is not waited for."""
        asked = self._asked.get(key)
        return asked is None or asked.number != number

    def _note_answered(self) -> None:
        self.moved()
        if not self._asked:
            self._all_answered.set()

    def _done(self, key: str) -> None:
        self._unsaid.discard(key)
        if key and self._store is not None:
            self._store.done(key)

    def _set_aside(self, one: Waiting, text: str) -> None:
        self.counters.set_aside += 1
        self._unsaid.discard(one.key)
        if self._store is not None:
            self._store.set_aside(one, text)

    def _refuse(self, message: Message, error: NodeError) -> None:
        self.out.failed(f"{error.code} {error.description}")
        if class_of(message) in (REQUEST, STORED):
            self._respond(message, messages.error_body(error))

    def _say_stored(self, message: Message) -> None:
        self._respond(message, {"code": 100, "description": "Stored, and sent later."})

    def _respond(self, message: Message, body: dict[str, Any]) -> None:
        if self._store is not None and class_of(message) is STORED:
            self._store.answering(message)
        self._answer(messages.reply(message, body))

    # --- from the peer ----------------------------------------------------------------------------

    def taken_in(self, message: Message, is_trusted: bool = False) -> Message:
        """A message of the peer in the form in which it is carried here.

        Args:
            message: the message.
            is_trusted: whether what it says of the sender's identity is kept.

        Raises:
            NotCarried: it is not carried.
        """
        if fault := crossing.incoming_fault(message, self._own, self._peer):
            if addresses.parse(message.sender).home == self._own:
                is_ours = (message.sender, message.id_key) in self._asked
                self.returned, self.spoofed = self.returned + is_ours, self.spoofed + (not is_ours)
            raise NotCarried(fault)
        if message.is_response and not self._was_asked(message):
            raise NotCarried("nobody has asked for this response")
        self.counters.received += 1
        self.moved_at = self._clock()
        self.into.passed_at = time.time()
        return crossing.incoming(message, is_trusted)

    def refused_here(self, why: str) -> None:
        """Note a refused message of the peer."""
        self.counters.refused += 1
        self.into.failed(why)

    def answered_here(self, frame: bytes) -> None:
        """Note an answer of the node to the peer; an error refuses what came from there."""
        with suppress(InvalidFrame, BadMessage):
            body = messages.parse(frame).fields()
            if isinstance(code := body.get("code"), int) and code >= 400:
                self.into.failed(f"{code} {body.get('description', '')}")

    def _was_asked(self, response: Message) -> bool:
        key = (response.recipients[0], response.id_key)
        asked = self._asked.get(key)
        one = asked.one if asked else self.queue.stored(self._again.get(key, ""))
        if one is None or response.sender != one.message.recipients[0]:
            return False
        if one.key and self._store is not None:
            self._store.answering(one.message)
        if asked is not None and not is_final(response):
            self._asked[key] = replace(asked, number=self.queue.number())  # it has been heard of
        if is_final(response):
            if asked is None:
                self.queue.take_stored(one.key)
            else:
                del self._asked[key]
                self._note_answered()
                self._given_up.discard(key)
                self.counters.round_trip = self._clock() - asked.at
            self._done(one.key)
        return True


class Idleness:
    """Tells when the stub of a peer has been idle for long enough to stop.

    A stub is needed while a message waits for the peer, a response may still come, or something is
    subscribed there.

    Args:
        seconds: time without a message in either direction after which the stub may stop.
        exchange: the exchange with the peer.
        subscriptions: the subscriptions there.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        seconds: float,
        exchange: PeerExchange,
        subscriptions: HeldSubscriptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._exchange = exchange
        self._subscriptions = subscriptions
        self._clock = clock

    @property
    def is_needed(self) -> bool:
        """Whether the stub has something to do, or soon may."""
        return self._exchange.is_busy or self._subscriptions.is_busy

    @property
    def until(self) -> float:
        """When it may be over."""
        return self._exchange.moved_at + self._seconds

    def is_over(self) -> bool:
        """Whether it was not needed for so long. Call this at `until`."""
        if self.is_needed:
            self._exchange.moved()
        return self._clock() >= self.until

"""The messages between this node and one peer: what waits, what was asked, what may come in.

Rules
- Frames wait in the peer's queue. A request whose time is over before it left is answered 504; one
  that finds no room, 503. Once it has left, nobody but the peer answers it, unless the way to the
  peer ends: then it is 503.
- A response is carried if the request it answers has left, and comes from who was asked. What else
  comes is held against crossing.py; what is refused is counted, and changes nothing.
- What a peer says as somebody of this domain is counted by itself: as `returned` if this node has
  sent it there, as `spoofed` if it has not.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from msgnode.core import addresses, messages
from msgnode.core.errors import GatewayTimeout, NodeError, Unavailable
from msgnode.core.messages import Message
from msgnode.devices.answering_link import is_final

from . import crossing
from .peer_queue import MessageClass, PeerQueue, class_of

ASKED_SECONDS = 600.0
MAX_ASKED = 20_000


@dataclass(slots=True)
class PeerCounters:
    """What has passed between this node and a peer, and what has not."""

    sent: int = 0
    received: int = 0
    refused: int = 0  # what came and was not carried
    expired: int = 0
    full: int = 0
    failed: int = 0  # requests that ended with the way to the peer, or the session there
    discarded: int = 0  # by an operator
    lost: int = 0  # what the stub wrote to a socket that was no more
    restarts: int = 0
    round_trip: float = 0.0  # of the last response, in seconds


class Refused(Exception):
    """What came from the peer is not carried; the text says why."""


class _Asked(NamedTuple):
    message: Message
    at: float


class PeerExchange:
    """One instance per peer that this worker serves.

    Args:
        own: the domain of this node.
        peer: the domain of the peer.
        queue: what waits for it.
        answer: carries a response in the place of the peer.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        own: str,
        peer: str,
        queue: PeerQueue,
        answer: Callable[[bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = PeerCounters()
        self.returned = self.spoofed = 0
        self.queue = queue
        self._own = own
        self._peer = peer
        self._answer = answer
        self._clock = clock
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()

    # --- to the peer ------------------------------------------------------------------------------

    def put(self, message: Message) -> None:
        """Have a message wait for the peer."""
        if not self.queue.put(message):
            self.counters.full += 1
            self._refuse(message, Unavailable(f"Too much waits for {self._peer}."))

    def take(self) -> bytes | None:
        """The next message, as the peer's stub is handed it; it has left now."""
        message = self.queue.take()
        if message is None:
            return None
        if class_of(message) is MessageClass.REQUEST:
            self._asked[message.sender, message.id_key] = _Asked(message, self._clock())
            if len(self._asked) > MAX_ASKED:
                self._asked.popitem(last=False)
        self.counters.sent += 1
        return crossing.outgoing(message)

    def expire(self) -> None:
        """Answer what has waited too long, and forget what was asked long ago."""
        for one in self.queue.expire():
            self.counters.expired += 1
            text = f"The node of {self._peer} could not be reached in time."
            self._refuse(one.message, GatewayTimeout(text))
        before = self._clock() - ASKED_SECONDS
        while self._asked and next(iter(self._asked.values())).at < before:
            self._asked.popitem(last=False)

    def discard(self, numbers: Collection[int] | None) -> None:
        """An operator wants these to wait no longer, or all: answer them."""
        found = self.queue.clear() if numbers is None else self.queue.remove(numbers)
        for one in found:
            self.counters.discarded += 1
            text = f"An operator has taken it out of the queue for {self._peer}."
            self._refuse(one.message, Unavailable(text))

    def fail_asked(self, text: str) -> None:
        """The way to the peer, or the session there, is over: answer what has no response."""
        asked, self._asked = self._asked, OrderedDict()
        for each in asked.values():
            self.counters.failed += 1
            self._refuse(each.message, Unavailable(text))

    def fail_all(self, text: str) -> None:
        """The peer is served no more: answer what waits, too."""
        self.fail_asked(text)
        for one in self.queue.clear():
            self._refuse(one.message, Unavailable(text))

    def _refuse(self, message: Message, error: NodeError) -> None:
        if class_of(message) is MessageClass.REQUEST:
            self._answer(messages.reply(message, messages.error_body(error)))

    # --- from the peer ----------------------------------------------------------------------------

    def taken_in(self, message: Message) -> bytes:
        """A message of the peer as it is carried here.

        Raises:
            Refused: it is not carried.
        """
        if fault := crossing.incoming_fault(message, self._own, self._peer):
            if addresses.parse(message.sender).home == self._own:
                is_ours = (message.sender, message.id_key) in self._asked
                self.returned, self.spoofed = self.returned + is_ours, self.spoofed + (not is_ours)
            raise Refused(fault)
        if message.is_response and not self._was_asked(message):
            raise Refused("nobody has asked for this response")
        self.counters.received += 1
        return crossing.incoming(message)

    def _was_asked(self, response: Message) -> bool:
        key = (response.recipients[0], response.id_key)
        asked = self._asked.get(key)
        if asked is None or response.sender != asked.message.recipients[0]:
            return False
        if is_final(response):
            del self._asked[key]
            self.counters.round_trip = self._clock() - asked.at
        return True

"""The subscriptions of this node at one peer. Pure.

HeldSubscriptions: what is observed here, each address once for all observers.
- One request at a time, of at most BATCH addresses; the addresses of a refused batch are requested
  one by one.
- A request that is not answered is repeated, with growing delays; so is what was pending when the
  connection was lost.
- In a new session of the peer everything is requested again. When that is answered, the observers
  of what was held before may have missed something, and are told.

WriterSubscriptions: the addresses here that write to a peer which routes to known addresses only.
- An address is subscribed before the first message from it, on the same way, so that it is known
  when the peer answers. Nobody waits for that.
- MAX_WRITERS at most: who wrote longest ago makes room. Who has not written for WRITER_SECONDS is
  unsubscribed.
- In a new session of the peer all are subscribed again, before anything else is sent.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from msgnode.core.back_off import BackOff
from msgnode.core.errors import BadMessage
from msgnode.core.messages import Message
from msgnode.sandbox import pipe
from msgnode.subscriptions import rules

BATCH = 200
ANSWER_SECONDS = 10.0
RENEWAL_SECONDS = 1.0
"""Least seconds between two renewals that the peer has asked for."""
MAX_NAMED = 10_000
MAX_WRITERS = 1_000
WRITER_SECONDS = 600.0
SM = "domain://msg-node.{}/sm"


class Answered(NamedTuple):
    """The answer of a peer to a request for some addresses."""

    addresses: list[str]
    code: int
    description: str

    @property
    def is_held(self) -> bool:
        """Whether the peer has granted it."""
        return 200 <= self.code < 300


class Observed(Protocol):
    """Notified of the results of subscriptions at a peer."""

    def answered(self, domain: str, answer: Answered) -> None:
        """Called when the peer has granted or refused these addresses."""
        ...

    def missed(self, domain: str, addresses: list[str]) -> None:
        """Called when observers of these addresses may have missed something."""
        ...


class _Request(NamedTuple):
    id: str
    type: str
    addresses: list[str]
    until: float


class HeldSubscriptions:
    """One instance per peer that this worker serves.

    Args:
        domain: the peer's domain.
        runtime_url: this node's runtime URL there.
        post: passes a message to the stub.
        observed: is told the results.
        wake: called when there is something to request.
        clock: a monotonic clock, in seconds.
        list_field: where the peer reads the addresses of a request (kinds.py).
    """

    def __init__(
        self,
        domain: str,
        runtime_url: str,
        post: Callable[[bytes], None],
        observed: Observed,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        list_field: str = "resources",
    ) -> None:
        self.address = f"{runtime_url}/sm"
        self._list_field = list_field
        self.peer_address = SM.format(domain)
        self.held: dict[str, None] = {}
        self._domain = domain
        self._post = post
        self._observed = observed
        self._wake = wake
        self._clock = clock
        self._asking: dict[str, None] = {}
        self._singly: set[str] = set()
        self._leaving: dict[str, None] = {}
        self._was_held: set[str] = set()  # in an earlier session of the peer
        self._request: _Request | None = None
        self._number = 0
        self._retries = BackOff(1.0, 60.0, clock=clock)
        self._next_at = 0.0
        self._is_suspect = False
        self._suspected: set[str] = set()  # held when the peer said that something was lost
        self._renewed_at = -RENEWAL_SECONDS

    def __len__(self) -> int:
        return len(self.held) + len(self._asking)

    @property
    def is_busy(self) -> bool:
        """Whether something is subscribed at the peer, or still to be requested."""
        return bool(self.held or self._asking or self._leaving or self._request)

    @property
    def due(self) -> float:
        """When `pump` has something to do next."""
        due = self._next_at if self._asking or self._leaving else math.inf
        if self._request is not None:
            due = self._request.until
        return min(due, self._renewed_at + RENEWAL_SECONDS) if self._is_suspect else due

    def want(self, addresses: Iterable[str], were_held: bool = False) -> None:
        """Subscribe these; `were_held`: the worker that served the peer before had done so."""
        for address in addresses:
            self._leaving.pop(address, None)
            if address not in self.held:
                self._asking[address] = None
                if were_held:
                    self._was_held.add(address)
        if self._asking:
            self._wake()

    def leave(self, addresses: Iterable[str]) -> None:
        """Unsubscribe these, which nobody here observes any more."""
        for address in addresses:
            self._asking.pop(address, None)
            self._was_held.discard(address)
            self._suspected.discard(address)
            self._singly.discard(address)
            if self.held.pop(address, self) is None:
                self._leaving[address] = None
        self._wake()

    def suspect(self) -> None:
        """Note a loss reported by the peer or its stub: everything is renewed soon.

        Subscriptions granted after the loss are not affected.
        """
        self._is_suspect = True
        if len(self._suspected) < len(self.held):  # all that is suspected is held
            self._suspected.update(self.held)

    def renew(self) -> None:
        """Request everything again, because the session at the peer is new."""
        self._suspected.update(self.held)
        self._renew()

    def _renew(self) -> None:
        self._is_suspect = False
        self._renewed_at = self._clock()
        self._give_up()
        self._was_held |= self._suspected
        self._suspected.clear()
        self._asking = {**self.held, **self._asking}
        self.held.clear()
        self._leaving.clear()
        self._next_at = 0.0

    def kept(self, message: Message) -> Message | None:
        """A message of a runtime here in the form for the peer, None if it must not be sent.

        A request to unsubscribe what others here also observe would end it for all. The bus has our
        own subscription manager answer in place of the peer's; this is for spellings of its address
        that only the peer may know.
        """
        if message.type != "unsubscribe":
            return message
        if message.recipients[0].rstrip("/").lower() != self.peer_address:
            return message
        try:
            asked = rules.wanted(message.fields(), MAX_NAMED)
        except BadMessage:
            return message  # the peer will tell
        named = (*asked.exact, *asked.optional)
        left = [each for each in named if each not in self.held and each not in self._asking]
        if len(left) == len(named):
            return message
        body = {self._list_field or message.type: left}
        return message.with_body(msgspec.json.encode(body)) if left else None

    def pump(self) -> None:
        """Send the next request if none is pending. Only while the stub is live."""
        now = self._clock()
        if self._is_suspect and now - self._renewed_at >= RENEWAL_SECONDS:
            self._renew()
        if self._request is not None:
            if now < self._request.until:
                return
            self._give_up()
            self._next_at = now + self._retries.failed()
        if now < self._next_at or not (self._leaving or self._asking):
            return
        if self._leaving:
            type_, addresses = "unsubscribe", list(self._leaving)[:BATCH]
            for address in addresses:
                del self._leaving[address]  # one that stays subscribed ends with the session
        else:
            type_, addresses = "subscribe", self._next()
        self._number += 1
        self._request = _Request(f"sm-{self._number}", type_, addresses, now + ANSWER_SECONDS)
        self._post(
            msgspec.json.encode(
                {
                    "id": self._request.id,
                    "type": type_,
                    "from": self.address,
                    "to": self.peer_address,
                    "body": {self._list_field or type_: addresses},
                }
            )
        )

    def take(self, response: Message) -> bool:
        """Process a response of the peer; return whether it was to one of these requests."""
        if not response.is_response or response.recipients[0] != self.address:
            return False
        request = self._request
        if (
            request is None
            or request.id != response.id_key
            or response.sender.rstrip("/") != self.peer_address
        ):
            return True  # late or forged: it changes nothing
        code, text = _said(response)
        if code < 200:
            return True
        self._request = None
        self._retries.reset()
        if request.type == "subscribe":
            wanted = [address for address in request.addresses if address in self._asking]
            answer = Answered(wanted, code, text)
            if answer.is_held:  # nobody wants some of them any more
                self._leaving.update(dict.fromkeys(a for a in request.addresses if a not in wanted))
            self._settle(answer)
        self.pump()
        return True

    def _settle(self, answer: Answered) -> None:
        if not answer.is_held and len(answer.addresses) > 1:
            self._singly.update(answer.addresses)
            return
        missed = [address for address in answer.addresses if address in self._was_held]
        for address in answer.addresses:
            del self._asking[address]
            self._singly.discard(address)
            self._was_held.discard(address)
            if answer.is_held:
                self.held[address] = None
        if answer.addresses:
            self._observed.answered(self._domain, answer)
        if missed:
            self._observed.missed(self._domain, missed)

    def _next(self) -> list[str]:
        addresses: list[str] = []
        for address in self._asking:
            if address in self._singly:
                if addresses:
                    break
                return [address]
            addresses.append(address)
            if len(addresses) == BATCH:
                break
        return addresses

    def _give_up(self) -> None:
        """Give up the pending request, and repeat it later."""
        request, self._request = self._request, None
        if request is not None and request.type == "unsubscribe":
            again = (a for a in request.addresses if a not in self._asking and a not in self.held)
            self._leaving.update(dict.fromkeys(again))


class WriterSubscriptions:
    """One instance per peer that routes to known addresses only.

    Args:
        domain: the peer's domain.
        runtime_url: this node's runtime URL there.
        post: passes a message to the stub.
        list_field: where the peer reads the addresses of a request (kinds.py).
        learns: the beginning of the addresses that it knows without (kinds.py).
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        domain: str,
        runtime_url: str,
        post: Callable[[bytes], None],
        list_field: str = "resources",
        learns: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = f"{runtime_url}/writers"
        self._peer_address = SM.format(domain)
        self._post = post
        self._list_field = list_field
        self._clock = clock
        self._learns = learns
        self._wrote_at: OrderedDict[str, float] = OrderedDict()
        self._number = 0

    @property
    def addresses(self) -> list[str]:
        """Those that are subscribed, who wrote longest ago first."""
        return list(self._wrote_at)

    @property
    def due(self) -> float:
        """When `sweep` has something to do next."""
        return next(iter(self._wrote_at.values()), math.inf) + WRITER_SECONDS

    def wrote(self, address: str) -> None:
        """Note that a message from this address is about to be passed to the stub."""
        if self._learns is not None and address.startswith(self._learns):
            return
        is_new = address not in self._wrote_at
        self._wrote_at[address] = self._clock()
        self._wrote_at.move_to_end(address)
        if not is_new:
            return
        self._ask("subscribe", [address])
        if len(self._wrote_at) > MAX_WRITERS:
            self._ask("unsubscribe", [self._wrote_at.popitem(last=False)[0]])

    def renew(self) -> None:
        """Subscribe all again, because the session at the peer is new."""
        self._ask("subscribe", list(self._wrote_at))

    def sweep(self) -> None:
        """Unsubscribe who has not written for long. Call this regularly, while the peer is live."""
        before = self._clock() - WRITER_SECONDS
        over: list[str] = []
        while self._wrote_at and next(iter(self._wrote_at.values())) < before:
            over.append(self._wrote_at.popitem(last=False)[0])
        self._ask("unsubscribe", over)

    def release(self) -> None:
        """Unsubscribe all, because the peer is left."""
        self._ask("unsubscribe", list(self._wrote_at))
        self._wrote_at.clear()

    def take(self, response: Message) -> bool:
        """Whether a response is to one of these requests. One that is refused changes nothing."""
        return response.is_response and response.recipients[0] == self.address

    def _ask(self, type_: str, addresses: list[str]) -> None:
        for start in range(0, len(addresses), BATCH):
            self._number += 1
            body = {self._list_field or type_: addresses[start : start + BATCH]}
            head = {"id": f"w-{self._number}", "type": type_, "from": self.address}
            self._post(msgspec.json.encode({**head, "to": self._peer_address, "body": body}))


def _said(response: Message) -> tuple[int, str]:
    """The code and text of a response, whatever the peer has put there."""
    try:
        body = response.fields()
    except BadMessage:
        return 502, "The answer cannot be read."
    code = body.get("code")
    text = pipe.shown(str(body.get("description") or body.get("desc") or ""))
    return (code if isinstance(code, int) and 100 <= code < 600 else 502), text

"""The messages that an XMPP server may not have taken yet, or whose receipts may still come.

Rules
- A component's stream acknowledges nothing. After at most 20 messages or 50 ms the server is
  pinged; that it answers shows that it has taken everything before.
- What it has not taken when the connection ends is sent again, in order and with the same ids, for
  ten seconds and three connections. A stored message comes back from its queue instead.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from msgnode.core.errors import BadGateway, GatewayTimeout, NodeError
from msgnode.core.messages import Message, error_body

from .network import Here

WINDOW, WINDOW_BYTES = 200, 4 * 1024 * 1024
BARRIER_MESSAGES, BARRIER_SECONDS = 20, 0.05
RESEND_SECONDS = 10.0
"""As long as a request waits: what was sent before is not sent later."""
ATTEMPTS = 3
RECEIPT_SECONDS = 5.0
MAX_RECEIPTS = 2_000
"""Most messages that wait for a receipt; beyond, the oldest is answered without."""


@dataclass(slots=True)
class Sent:
    """A message on the wire; `to` is who was written to, without a resource."""

    message: Message
    stanza: bytes
    to: str
    until: float
    attempts: int = 1
    is_answered: bool = False


class Unacknowledged:
    """One instance per network.

    Args:
        domain: of the network.
        here: this node, which answers senders.
        ping: pings the server; returns the id of the ping.
        clock: a monotonic clock, in seconds.
        wants_receipts: whether a message is answered by its receipt.
    """

    def __init__(
        self,
        domain: str,
        here: Here,
        ping: Callable[[], str],
        clock: Callable[[], float],
        wants_receipts: bool,
    ) -> None:
        self._domain = domain
        self._here = here
        self._ping = ping
        self._clock = clock
        self._wants_receipts = wants_receipts
        self._sent: OrderedDict[str, Sent] = OrderedDict()
        self._bytes = 0  # of the stanzas in `_sent`
        self._receipts: OrderedDict[str, Sent] = OrderedDict()
        self._since: list[str] = []  # ids since the last ping
        self._pings: deque[tuple[str, list[str], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more may be sent for now."""
        return len(self._sent) >= WINDOW or self._bytes >= WINDOW_BYTES

    @property
    def pinged_at(self) -> float | None:
        """When the oldest ping was sent that is not answered."""
        return self._pings[0][2] if self._pings else None

    def due(self, is_connected: bool) -> float:
        """When `expire` has something to do next."""
        first = [next(iter(self._receipts.values()), None)]
        if not is_connected:
            first.append(next(iter(self._sent.values()), None))
        return min((each.until for each in first if each is not None), default=math.inf)

    def id_of(self, message: Message) -> str:
        """The id of a message there, the same each time that it is sent."""
        text = f"{message.sender} {message.id_key}".encode()
        id_ = f"r-{blake2b(text, digest_size=9).hexdigest()}"
        while id_ in self._sent or id_ in self._receipts:
            id_ += "-"
        return id_

    def add(self, id_: str, message: Message, stanza: bytes, to: str) -> None:
        """Note a message that is sent now."""
        self._sent[id_] = Sent(message, stanza, to, self._clock() + RESEND_SECONDS)
        self._bytes += len(stanza)
        self._count(id_)

    def again(self, send: Callable[[bytes], None]) -> None:
        """Send first on a new connection what may be lost: each message, then its ping."""
        for id_, sent in self._sent.items():
            send(sent.stanza)
            self._count(id_)

    def ping(self) -> None:
        """Ask the server whether it has taken everything so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ids, self._since = self._since, []
        if id_ := self._ping():
            self._pings.append((id_, ids, self._clock()))
            self._here.wake()

    def passed(self, id_: str) -> bool:
        """Settle what a ping has shown to be taken; whether it was one of these."""
        if not any(each[0] == id_ for each in self._pings):
            return False
        while self._pings:
            pinged, ids, _ = self._pings.popleft()
            for each in ids:
                self._settle(each)
            if pinged == id_:
                break
        return True

    def lost(self) -> None:
        """Note that the connection has ended: what was sent may not have arrived."""
        self._pings.clear()
        self._since = []
        for id_, sent in list(self._sent.items()):
            sent.attempts += 1
            if sent.is_answered or self._here.is_stored(sent.message):
                self._take(id_)
            elif sent.attempts > ATTEMPTS:
                self._take(id_)
                self._refuse(sent, BadGateway(f"{self._domain} ends connections at this message."))

    def refused(self, id_: str, by: str, fault_of: Callable[[str], NodeError]) -> bool:
        """Answer a message that the server has refused; whether there is one.

        Args:
            id_: of the message there.
            by: who was written to, in whose name the server refuses it.
            fault_of: what is answered, for who was written to.
        """
        sent = self._sent.get(id_) or self._receipts.get(id_)
        if sent is None or sent.is_answered or sent.to != by:
            return False
        self._receipts.pop(id_, None)
        sent.is_answered = True
        self._refuse(sent, fault_of(sent.to))
        return True

    def received(self, id_: str, by: str) -> None:
        """Answer a message whose receipt has come from who was written to."""
        sent = self._sent.get(id_) or self._receipts.get(id_)
        if sent is None or sent.is_answered or sent.to != by:
            return
        self._receipts.pop(id_, None)
        sent.is_answered = True
        self._here.answer(sent.message, {"code": 200, "desc": "received"})

    def expire(self, is_connected: bool) -> None:
        """Answer what has waited too long for a connection, or for a receipt."""
        now = self._clock()
        while not is_connected and self._sent:
            id_, first = next(iter(self._sent.items()))
            if first.until > now:
                break
            self._take(id_)
            self._refuse(first, GatewayTimeout(f"{self._domain} could not be reached in time."))
        while self._receipts and next(iter(self._receipts.values())).until <= now:
            self._answer_sent(self._receipts.popitem(last=False)[1])

    def _count(self, id_: str) -> None:
        self._since.append(id_)
        if len(self._since) >= BARRIER_MESSAGES:
            self.ping()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BARRIER_SECONDS, self.ping)

    def _take(self, id_: str) -> Sent | None:
        sent = self._sent.pop(id_, None)
        self._bytes -= len(sent.stanza) if sent is not None else 0
        return sent

    def _settle(self, id_: str) -> None:
        """Answer a message that the server has taken, or wait for its receipt."""
        sent = self._take(id_)
        if sent is None or sent.is_answered:
            return
        if self._wants_receipts:
            sent.until = self._clock() + RECEIPT_SECONDS
            self._receipts[id_] = sent
            if len(self._receipts) > MAX_RECEIPTS:
                self._answer_sent(self._receipts.popitem(last=False)[1])
        else:
            self._answer_sent(sent)

    def _answer_sent(self, sent: Sent) -> None:
        self._here.answer(sent.message, {"code": 200, "desc": "sent"})

    def _refuse(self, sent: Sent, error: NodeError) -> None:
        self._here.answer(sent.message, error_body(error))

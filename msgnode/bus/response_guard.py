"""Hands responses over: to a session only from one that it has asked.

Rules
- What a session asks, and whom, is kept with the session (open_requests.py), at its own worker, and
  goes along when it changes its worker. So a response is judged where the one who asked is.
- Of several sessions of one runtime URL the one that asked gets the response.
- An `update` to `…/changes` or `…/status` asks nobody.
- Any other response is dropped and counted. Nobody is told: a response is never answered.
- A session that came out of the database has forgotten whom it had asked. The first response it
  misses by that is signalled as a gap.
- Who keeps requests for others, longer than sessions remember them, vouches for a response.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgnode.core.messages import Message
from msgnode.core.record import Outcome

from . import delivery
from .ports import Caller, DeliveryResult, Listener, Response
from .table import RoutingTable

MAX_VOUCHED = 10_000
HandOver = Callable[..., tuple[Outcome, int]]
"""As delivery.hand_over."""


class ResponseGuard:
    """One instance per worker. `is_strict` False lets every response pass."""

    def __init__(self, table: RoutingTable, is_strict: bool, missed: Callable[[str], None]) -> None:
        self.is_strict = is_strict
        self.dropped = 0
        self._vouched: OrderedDict[Response, None] = OrderedDict()
        self._table = table
        self._missed = missed

    def vouch(self, response: Response) -> None:
        """Some session of the node has asked for this: the next such response passes."""
        self._vouched[response] = None
        if len(self._vouched) > MAX_VOUCHED:
            self._vouched.popitem(last=False)

    def hand_back(
        self,
        message: Message,
        frame: bytes,
        found: tuple[Listener, ...],
        session: Listener,
        caller: Caller,
        now: float,
        hand_over: HandOver = delivery.hand_over,
    ) -> tuple[Outcome, int]:
        """Give a response to who asked for it; the outcome, and how many took it.

        Args:
            message: the response, to one recipient.
            frame: what is delivered.
            found: where the recipient's address leads.
            session: who gives the response.
            caller: is held back by a reader that is behind.
            now: seconds of a clock that never goes back.
            hand_over: gives it to the listeners.
        """
        if not self.is_strict:
            return hand_over(frame, found, session, caller)
        to, id_ = message.recipients[0], message.id_key
        if len(found) == 1:
            listener = found[0]
            if listener.is_here and listener.has_asked(to, id_, session.id, now):
                return hand_over(frame, found, session, caller)
            response = Response(to, id_, session.id)
            if response in self._vouched:
                del self._vouched[response]
                return hand_over(frame, found, session, caller)
            found = (self.asker(listener, response, now),)
        else:
            response = Response(to, id_, session.id)
        asking = tuple(
            each for each in found if not each.is_here or self.has_asked(each, response, now)
        )
        if not asking:
            return Outcome.REFUSED, 0
        return hand_over(frame, asking, session, caller, response)

    def respond(
        self, session: Listener, frame: bytes, response: Response, now: float
    ) -> DeliveryResult | None:
        """Give a session a response from another worker; None if it has not asked for it."""
        session = self.asker(session, response, now)
        return session.deliver(frame) if self.has_asked(session, response, now) else None

    def has_asked(self, session: Listener, response: Response, now: float) -> bool:
        """Whether a session of this worker has asked for it; counted if not."""
        if session.has_asked(*response, now):
            return True
        self.dropped += 1
        if session.has_forgotten():
            self._missed(session.id)
        return False

    def asker(self, listener: Listener, response: Response, now: float) -> Listener:
        """Of the sessions of a runtime the one that has asked, as far as that is known here."""
        siblings = self._table.runtimes.get(listener.runtime_url, ())
        if len(siblings) > 1:
            for each in siblings:
                if each.is_here and each.has_asked(*response, now):
                    return each
        return listener

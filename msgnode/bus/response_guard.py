"""Delivers a response to a session only if it comes from a session that was asked.

Rules
- The open requests of a session (open_requests.py) are at its own worker, and move with it. So a
  response is checked at the worker of the requester.
- Of several sessions of one runtime URL the one that asked gets the response.
- An `update` to `…/changes` or `…/status` is not a request.
- Any other response is dropped and counted, silently: a response is never answered.
- A session restored from the database has lost its open requests. The first response that is
  dropped for that reason is signalled to it as a gap.
- A component that keeps requests for longer than sessions do vouches for their responses.
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
"""`delivery.hand_over`, or one with the same arguments."""


class ResponseGuard:
    """One instance per worker. `is_strict` False lets every response pass."""

    def __init__(self, table: RoutingTable, is_strict: bool, missed: Callable[[str], None]) -> None:
        self.is_strict = is_strict
        self.dropped = 0
        self._vouched: OrderedDict[Response, None] = OrderedDict()
        self._table = table
        self._missed = missed

    def vouch(self, response: Response) -> None:
        """Let the next such response pass: a session of the node has asked for it."""
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
        """Deliver a response to the session that asked for it.

        Args:
            message: the response, with one recipient.
            frame: the frame to deliver.
            found: the listeners at the recipient's address.
            session: the responding session.
            caller: paused if the reader lags.
            now: seconds of a monotonic clock.
            hand_over: delivers the frame.

        Returns:
            The outcome, and how many accepted the frame.
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
        """Deliver a response from another worker; None if the session has not asked for it."""
        session = self.asker(session, response, now)
        return session.deliver(frame) if self.has_asked(session, response, now) else None

    def has_asked(self, session: Listener, response: Response, now: float) -> bool:
        """Whether a session of this worker has asked for the response; counted if not."""
        if session.has_asked(*response, now):
            return True
        self.dropped += 1
        if session.has_forgotten():
            self._missed(session.id)
        return False

    def asker(self, listener: Listener, response: Response, now: float) -> Listener:
        """The session of the listener's runtime that asked, else the listener itself."""
        siblings = self._table.runtimes.get(listener.runtime_url, ())
        if len(siblings) > 1:
            for each in siblings:
                if each.is_here and each.has_asked(*response, now):
                    return each
        return listener

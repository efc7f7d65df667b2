"""Answers frames from other workers whose recipient session has ended in the meantime."""

from __future__ import annotations

from functools import partial

from msgnode.core import messages
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import NotFound
from msgnode.core.pending import Pending

from . import delivery, routes
from .holders import NO_OTHERS, Holders
from .routes import ComponentBook, ToSessions
from .table import RoutingTable


class Bounces:
    """Tells the senders of such frames. One instance per worker.

    Args:
        domain: the node's domain.
        table: the routing table.
        components: the node's components.
        holders: finds the sender's worker if the table does not have it.
    """

    def __init__(
        self,
        domain: str,
        table: RoutingTable,
        components: ComponentBook,
        holders: Holders = NO_OTHERS,
    ) -> None:
        self._domain = domain
        self._table = table
        self._components = components
        self._holders = holders

    def bounce(self, frame: bytes) -> None:
        """Answer a frame with 404, if its sender expects an answer."""
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return
        to = message.recipients[0]
        if not delivery.expects_answer(message, to):
            return
        answer = messages.reply(message, messages.error_body(NotFound(f"Nobody listens to {to}.")))
        try:
            self._holders.find((answer, "bounced"), (message.sender,))
        except Pending as fact:
            fact.when_known(partial(self._give_back, answer, message.sender))
        else:
            self._give_back(answer, message.sender)

    def _give_back(self, answer: bytes, sender: str) -> None:
        route = routes.choose(
            messages.parse(answer), sender, self._components, self._table, self._domain
        )
        if isinstance(route, ToSessions):
            route.listeners[0].deliver(answer)

"""Refuses what is not delivered: invalid frames, refused messages, messages without a listener.

The sender is answered where it expects an answer, and the refusal is recorded. So are senders at
other workers whose frame has come after its recipient's session had ended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgnode.core import addresses, messages
from msgnode.core.decision import Decision
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import Forbidden, NodeError, NotFound
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome

from . import delivery, routes
from .holders import NO_OTHERS, Holders
from .ports import Caller
from .recording import Rows
from .routes import ComponentBook, ToSessions
from .table import RoutingTable


class ForeignDomains(Protocol):
    """What this node knows about the nodes of other domains."""

    def refusal(self, to: str) -> NodeError | None:
        """Why a message does not reach a foreign address; None if there is nothing to add."""
        ...


class NoForeignDomains:
    """The ForeignDomains of a node without federation."""

    def refusal(self, to: str) -> NodeError | None:
        """Always None."""
        return None


NO_FOREIGN_DOMAINS = NoForeignDomains()


SESSION_ADDRESS = "mn:/session"


class NotPermitted(Forbidden):
    """A policy decided against the message."""

    title = "Blocked by policy"

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.reason)
        self.code = decision.code  # type: ignore[misc]  # a limit's is 429
        self.decision = decision


class Refusals:
    """One instance per pipeline.

    Args:
        address: the node's address.
        rows: where each invalid frame is noted.
    """

    def __init__(self, address: str, rows: Rows) -> None:
        self._address = address
        self._rows = rows

    def frame(self, fault: InvalidFrame, frame: bytes, caller: Caller, began: float) -> None:
        """Answer an invalid frame, with those of its parts that are known.

        The answer never comes from mn:/session, because stubs of the field drop what comes from
        there. An invalid response is not answered, or two nodes would answer each other for ever.
        """
        sender = self._address if fault.to in ("", SESSION_ADDRESS) else fault.to
        to = fault.sender or caller.speaker.runtime_url
        if not fault.is_response:
            caller.put(messages.response(fault.id, sender, to, messages.error_body(fault)))
        self._rows.note_fault(fault, frame, caller.speaker, began)

    def message(
        self,
        message: Message,
        caller: Caller,
        error: NodeError,
        decision: Decision,
        began: float,
        note: Callable[..., None],
    ) -> None:
        """Refuse a whole message (401, 403 and the like), from the address it was sent to."""
        outcome = Outcome.REFUSED
        if isinstance(error, NotPermitted):
            decision, outcome = error.decision, Outcome.BLOCKED
        to = message.recipients[0]
        if not message.is_response:
            is_stub_business = outcome is Outcome.BLOCKED and to == SESSION_ADDRESS
            sender = self._address if is_stub_business else ""  # stubs drop errors of mn:/session
            caller.put(messages.reply(message, messages.error_body(error), sender=sender))
        note(message, to, caller.speaker, decision, began, outcome, code=error.code)

    def undelivered(
        self, message: Message, to: str, error: NodeError, caller: Caller
    ) -> tuple[Outcome, int]:
        """Answer the sender if it expects that; return outcome and code for the record."""
        if isinstance(error, NotPermitted):
            outcome = Outcome.BLOCKED
        elif isinstance(error, NotFound):
            outcome = Outcome.UNDELIVERABLE
        else:
            outcome = Outcome.DROPPED
        if not delivery.expects_answer(message, to) and outcome is not Outcome.BLOCKED:
            return outcome, 0
        if not message.is_response:
            caller.put(messages.reply(message, messages.error_body(error)))
        return outcome, error.code


class Bounces:
    """Tells the senders of such frames. One instance per worker.

    Args:
        domain: the node's domain.
        table: the routing table.
        components: the node's components.
        holders: finds the sender's worker if the table does not have it.
        foreign: explains refusals of addresses of other domains, whose session here may have ended.
    """

    def __init__(
        self,
        domain: str,
        table: RoutingTable,
        components: ComponentBook,
        holders: Holders = NO_OTHERS,
        foreign: ForeignDomains = NO_FOREIGN_DOMAINS,
    ) -> None:
        self._domain = domain
        self._table = table
        self._components = components
        self._holders = holders
        self._foreign = foreign

    def bounce(self, frame: bytes) -> None:
        """Answer a frame with 404, or as a foreign domain is refused, if an answer is expected."""
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return
        to = message.recipients[0]
        if not delivery.expects_answer(message, to):
            return
        is_foreign = addresses.foreign_domain(to, self._domain)
        error = self._foreign.refusal(to) if is_foreign else None
        error = error or NotFound(f"Nobody listens to {to}.")
        answer = messages.reply(message, messages.error_body(error))
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

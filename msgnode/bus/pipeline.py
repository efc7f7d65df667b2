"""The path that every message takes, whoever sends it.

carry(frame, caller)
  1 parse     an invalid frame is answered 400 and changes nothing
  2 admit     is a session open, who speaks, may it speak as this `from`?
  3 enforce   inbound policies; a refusal is answered 403
  for each recipient:
  4 choose    a Route value
  5 enforce   outbound policies, once per recipient
  6 deliver   as the route says: component · sessions · nowhere; a response only to the requester
  7 note      one row for the traffic record, refusals included
A traced message takes the same path, with steps that time themselves (steps.py).
A component's answer passes step 5 too. One `try` turns errors into answers; a `response` is never
answered. Everything here runs inline and never blocks; an answer that takes time is completed
later. If step 2 or 3 needs a fact that is still being fetched (Pending), only this caller waits:
its frame is carried again when the fact is known. One such fact, looked up between 2 and 3, is who
holds an address that only another worker knows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from time import clock_gettime, perf_counter

from msgnode.core import addresses, messages
from msgnode.core.decision import NOT_APPLICABLE, Decision, Direction
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import Forbidden, InternalFault, NodeError, NotFound, Unavailable
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome

from . import delivery, routes
from .delivery import FanOut
from .holders import NO_OTHERS, Holders, find_holders
from .ports import (
    ALWAYS,
    LEASE_CLOCK,
    Authorizer,
    Caller,
    Enforcer,
    Listener,
    MessageObserver,
    Recorder,
    Requester,
    ServingLease,
    SessionHandler,
)
from .recording import Rows
from .refusals import NO_FOREIGN_DOMAINS, SESSION_ADDRESS, ForeignDomains, NotPermitted, Refusals
from .replies import Replies
from .response_guard import ResponseGuard
from .return_paths import ReturnPath
from .routes import ComponentBook, ToComponent, ToSessions
from .steps import MessageTracer, Steps, TracedSteps
from .table import RoutingTable

log = logging.getLogger(__name__)

AnySteps = Steps | TracedSteps
_IN, _OUT = Direction.IN, Direction.OUT
_DROPPED, _REFUSED = Outcome.DROPPED, Outcome.REFUSED
COPIES_AS_ONE = 8
"""So many copies for further listeners of one address count as one message's bytes: a copy is only
written, not read, checked and decided upon."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What a route is chosen from.

    Attributes:
        domain: the node's domain.
        table: the routing table.
        components: the node's components.
        holders: finds who holds addresses that the table does not know.
        foreign: explains refusals of addresses of other domains.
    """

    domain: str
    table: RoutingTable
    components: ComponentBook
    holders: Holders = NO_OTHERS
    foreign: ForeignDomains = NO_FOREIGN_DOMAINS


class Pipeline:
    """One instance per worker; `carry` processes the messages of every kind of caller.

    While `lease` is not certain, messages wait. `tracer` chooses messages whose steps are timed.
    """

    def __init__(
        self,
        routing: Routing,
        authorizer: Authorizer,
        session_handler: SessionHandler,
        enforcer: Enforcer,
        recorder: Recorder,
        answers: Replies,
        guard: ResponseGuard,
        lease: ServingLease = ALWAYS,
    ) -> None:
        self.tracer: MessageTracer | None = None
        self._holders = routing.holders
        self._foreign = routing.foreign
        self._domain = routing.domain
        self._table = routing.table
        self._components = routing.components
        self._lease = lease
        self._session_handler = session_handler
        self._rows = Rows(recorder)
        self._refusals = Refusals(f"domain://msg-node.{routing.domain}", self._rows)
        self._guard = guard
        self._is_strict = guard.is_strict
        self._steps = Steps(
            authenticate=authorizer.authenticate,
            authorize=authorizer.authorize,
            enforce=enforcer.enforce,
            hand_over=delivery.hand_over,
            fan_out=FanOut,
            ask=answers.ask,
            note=self._rows.note,
        )

    def watch(self, tap: MessageObserver | None) -> None:
        """Show every message to an observer; None ends that."""
        self._rows.tap = tap

    # --- 1 parse ----------------------------------------------------------------------------------

    def carry(self, frame: bytes, caller: Caller, message: Message | None = None) -> None:
        """Process one frame of a caller. Never raises; a request always gets an answer.

        Args:
            frame: the text of the message, UTF-8.
            caller: where it came from, and where answers to it go.
            message: what was read in it, if it was.
        """
        began = perf_counter()
        if message is None:
            try:
                message = messages.parse(frame)
            except InvalidFrame as fault:
                self._refusals.frame(fault, frame, caller, began)
                return
        plain = self._steps
        steps: AnySteps = plain
        if self.tracer is not None:
            steps = self.tracer.takes(message, caller, began, plain) or plain
        try:
            recipients = message.recipients
            if recipients[0] == SESSION_ADDRESS:
                rest = self._handle_session_frame(message, frame, caller, began, steps)
                caller.carry_on(steps.in_turns(rest))
                return
            if len(recipients) > 1:
                rest = self._deliver_to_each(message, frame, caller, began, steps)
                caller.carry_on(steps.in_turns(rest))
                return
            decision = NOT_APPLICABLE
            try:
                if clock_gettime(LEASE_CLOCK) >= self._lease.until:
                    self._lease.check()
                session, speaker = steps.authorize(message, caller)
                if self._holders is not NO_OTHERS:
                    find_holders(self._holders, message, session, self._components, self._table)
                decision = steps.enforce(message, speaker, _IN)
                if not decision.passes:
                    raise NotPermitted(decision)
                if decision.body is not None:
                    message = message.with_body(decision.body)
            except Exception as error:
                self._not_admitted(error, message, frame, caller, decision, began, steps)
                return
            large = self._deliver_to(
                message, recipients[0], decision, session, speaker, caller, began, steps
            )
            if large is not None:
                caller.carry_on(large)
        finally:
            if steps is not plain:
                steps.release()

    # --- 2 admit, 3 enforce: what is another's way than that of one message to one address --------

    def _handle_session_frame(
        self, message: Message, frame: bytes, caller: Caller, began: float, steps: AnySteps
    ) -> Iterator[None]:
        """Handle a session frame as one step, so that a rush of them delays no messages."""
        if not caller.is_carrying:
            return
        decision = NOT_APPLICABLE
        try:
            self._lease.check()
            steps.authenticate(message, caller)
            decision = steps.enforce(message, caller.speaker, _IN)
            if not decision.passes:
                raise NotPermitted(decision)
            self._session_handler.handle(message, caller)
        except Exception as error:
            self._not_admitted(error, message, frame, caller, decision, began, steps)
        else:
            steps.note(message, SESSION_ADDRESS, caller.speaker, decision, began,
                       Outcome.ANSWERED, component="session")  # fmt: skip
        yield from ()

    def _not_admitted(
        self,
        error: Exception,
        message: Message,
        frame: bytes,
        caller: Caller,
        decision: Decision,
        began: float,
        steps: AnySteps,
    ) -> None:
        """Handle a frame that was not admitted: hold it for a pending fact, or refuse it."""
        if isinstance(error, Pending):
            steps.wait(error)
            if error.cost:
                caller.charge(error.cost, 0)
            caller.hold(frame, error)
            return
        if not isinstance(error, NodeError):
            log.error("A message could not be admitted.", exc_info=error)
            error = InternalFault()
        self._refusals.message(message, caller, error, decision, began, steps.note)

    def _deliver_to_each(
        self, message: Message, frame: bytes, caller: Caller, began: float, steps: AnySteps
    ) -> Iterator[None]:
        """Deliver to each recipient by itself: a permit for one address is none for another.

        Finding out who holds so many addresses is a step as well.
        """
        if not caller.is_carrying:
            return
        try:
            self._lease.check()
            session, speaker = steps.authorize(message, caller)
            if self._holders is not NO_OTHERS:
                find_holders(self._holders, message, session, self._components, self._table)
        except Exception as error:
            self._not_admitted(error, message, frame, caller, NOT_APPLICABLE, began, steps)
            return
        further = len(message.recipients) - 1
        caller.charge(further, further * len(frame))
        yield
        for to in message.recipients:
            one = message.to_one(to)
            large = self._deliver_to(one, to, None, session, speaker, caller, began, steps)
            if large is not None:
                yield from large
            yield

    def _enforce_inbound(
        self, message: Message, speaker: Speaker, steps: AnySteps
    ) -> tuple[Message, Decision]:
        """The message after the inbound policies, which may have rewritten it."""
        decision = steps.enforce(message, speaker, _IN)
        if not decision.passes:
            raise NotPermitted(decision)
        if decision.body is not None:
            message = message.with_body(decision.body)
        return message, decision

    # --- 4 choose, 5 enforce, 6 deliver, 7 note: for each recipient -------------------------------

    def _deliver_to(
        self,
        message: Message,
        to: str,
        inbound: Decision | None,
        session: Requester,
        speaker: Speaker,
        caller: Caller,
        began: float,
        steps: AnySteps,
    ) -> Iterator[None] | None:
        """Deliver to one recipient; return the remaining steps if it is too much for one turn."""
        listeners = code = 0
        component = ""
        decision = inbound or NOT_APPLICABLE
        try:
            if inbound is None:
                message, decision = self._enforce_inbound(message, speaker, steps)
            route = routes.choose(message, to, self._components, self._table, self._domain, session)
            out = steps.enforce(message, speaker, _OUT)
            if not out.passes:
                raise NotPermitted(out)
            if out.auth or not decision.auth:
                decision = out
            if isinstance(route, ToSessions):
                done = self._to_sessions(
                    message, to, route.listeners, decision, out, session, speaker, caller, began,
                    steps,
                )  # fmt: skip
                if isinstance(done, FanOut):
                    return steps.in_turns(self._deliver_in_parts(
                        done, message, to, speaker, caller, decision, began, steps
                    ))  # fmt: skip
                outcome, listeners = done
                if outcome is _DROPPED:
                    raise _full(to)
                if outcome is _REFUSED:
                    code = Forbidden.code
            elif isinstance(route, ToComponent):
                component = route.component.name
                outcome = Outcome.ANSWERED
                code = steps.ask(route.component, message, session, caller)
            else:
                raise self._unreached(message, to, route.reason)
        except NodeError as error:
            if isinstance(error, NotPermitted):
                decision = error.decision
            outcome, code = self._refusals.undelivered(message, to, error, caller)
        except Exception:
            log.exception("A message could not be delivered.")
            outcome, code = self._refusals.undelivered(message, to, InternalFault(), caller)
        steps.note(message, to, speaker, decision, began, outcome,
                   listeners, component, code)  # fmt: skip
        return None

    def _unreached(self, message: Message, to: str, reason: str) -> NodeError:
        """The error for a message that reaches nobody, or nobody that is known.

        Who gives a response is not told that; so who asked is, once it is known who that is.
        """
        if self._holders.is_known(to):
            return self._foreign.refusal(to) or NotFound(reason)
        if message.is_response:
            self._holders.miss_response(to)
        return Unavailable(f"Whether anybody listens to {to} is not known just now.")

    def _to_sessions(
        self,
        message: Message,
        to: str,
        found: tuple[Listener, ...],
        decision: Decision,
        out: Decision,
        session: Requester,
        speaker: Speaker,
        caller: Caller,
        began: float,
        steps: AnySteps,
    ) -> tuple[Outcome, int] | FanOut:
        """Deliver to the listeners; return a fan-out that is too much for one turn."""
        if "/p2p" in to and message.type == "create" and addresses.is_p2p_stub(to):
            invite(session, to, found)
        identity = speaker.identity
        heard_by = (
            [each.runtime_url for each in found] if message.identity_fields.accessToken else ()
        )
        frame = message.forwarded(to, decision.auth, identity is not None, out.body, heard_by)
        is_one = len(found) == 1
        if identity is not None and is_one and self._table.leads_to_node(to, found[0]):
            frame = messages.vouched(frame, identity)
        path = None
        shared = self._table.shared
        if speaker.peer or (shared and session.runtime_url in shared):
            path = self._remember_return_path(message, session, found)
        if not is_one:
            caller.charge(0, len(frame) * (len(found) - 1) // COPIES_AS_ONE)
        if message.is_response:
            return self._guard.hand_back(
                message, frame, found, session, caller, began, steps.hand_over
            )
        if self._is_strict and not (
            message.type == "update" and to.endswith(delivery.SILENT_TAILS)
        ):
            if is_one:
                session.ask(message.sender, message.id, found[0].id, began)
            else:
                ids = self._table.ids(to, found)
                session.ask_group(message.sender, message.id, ids, began)
        if not is_one:
            fan_out = steps.fan_out(frame, found, session, path)
            if fan_out.is_large:
                return fan_out
        return steps.hand_over(frame, found, session, caller, path)

    def _deliver_in_parts(
        self,
        fan_out: FanOut,
        message: Message,
        to: str,
        speaker: Speaker,
        caller: Caller,
        decision: Decision,
        began: float,
        steps: AnySteps,
    ) -> Iterator[None]:
        """Deliver a fan-out too large for one turn of the loop, then note its row."""
        yield from fan_out.parts()
        outcome, listeners = fan_out.outcome
        code = 0
        if outcome is _DROPPED:
            outcome, code = self._refusals.undelivered(message, to, _full(to), caller)
        steps.note(message, to, speaker, decision, began, outcome, listeners, code=code)

    def _remember_return_path(
        self, message: Message, session: Listener, found: tuple[Listener, ...]
    ) -> ReturnPath | None:
        """Remember which of several sessions of one runtime or peer asked, for the answer.

        Returns:
            The path, for listeners at other workers.
        """
        if message.is_response:
            return None
        path = ReturnPath(message.sender, message.id_key, session.id, session.runtime_url)
        is_one = len(found) == 1
        self._table.return_paths.remember(path, found[0].id if is_one else "")
        return None if is_one and found[0].is_here else path


def _full(to: str) -> Unavailable:
    return Unavailable(f"{to} is not connected, and its queue is full.")


def invite(session: Requester, to: str, found: tuple[Listener, ...]) -> None:
    """Note an invitation to a P2P connection, unless its runtime is disconnected.

    It would be useless by the time the runtime returns, and the inviter waits for an answer.

    Args:
        session: the inviter.
        to: the address of the P2P stub.
        found: the listeners at that address.

    Raises:
        Unavailable: the runtime has no connection at the moment.
        TooMany: the session has invited too many.
    """
    if not any(listener.is_connected for listener in found):
        raise Unavailable(f"{to} is not connected at the moment; an invitation does not wait.")
    session.has_invited(to)

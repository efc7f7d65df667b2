"""The pipeline for traced messages: as pipeline.py, with each step timed.

It is a second pipeline around the same parts, made when tracing begins, so that other messages pay
one comparison. The tracer (monitoring/tracer.py) chooses which messages are traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from msgnode.core.decision import Decision, Direction
from msgnode.core.errors import NodeError
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome

from . import delivery
from .delivery import Beside, FanOut
from .pipeline import Pipeline
from .ports import Caller, Component, Listener, Requester
from .recording import Rows
from .refusals import Refusals
from .trace import Trace, TracedDelivery

MOST_HELD = 100


class TracedPipeline(Pipeline):
    """The pipeline of a worker for messages that are traced.

    Args:
        plain: the worker's pipeline, complete.
    """

    def __init__(self, plain: Pipeline) -> None:
        vars(self).update(vars(plain))
        self.tracer = None
        self.current: Trace | None = None
        self.routing_began = 0.0
        self.held: dict[int, tuple[Trace, float, str]] = {}
        self._rows = _TracedRows(self, plain._rows)
        self._refusals = Refusals(self._address, self._rows)
        self._authorizer = _TracedAuthorizer(self, plain._authorizer)
        self._enforcer = _TracedEnforcer(self, plain._enforcer)
        self._answers = _TracedReplies(self, plain._answers)  # type: ignore[assignment]
        self._hand_over = self._hand_over_traced
        self._fan_out = self._fan_out_traced

    def carry_traced(self, trace: Trace, caller: Caller) -> None:
        """Carry a message, as `carry` does, and note its steps."""
        before, self.current = self.current, trace
        try:
            self.carry(trace.frame, caller)
        finally:
            self.current = before
            trace.release()

    def take_held(self, frame: bytes) -> Trace | None:
        """The trace of a frame that waited for a fact and is carried again, None if not traced."""
        held = self.held.pop(id(frame), None)
        if held is None or held[0].frame is not frame:
            return None
        trace, began, fact = held
        trace.step("wait", began, fact=fact)
        return trace

    def _keep_held(self, trace: Trace, fact: Pending) -> None:
        """Keep the trace of a frame that waits for a fact, for the last MOST_HELD of them."""
        if len(self.held) >= MOST_HELD:
            self.held.pop(next(iter(self.held)))[0].release()
        trace.hold()
        self.held[id(trace.frame)] = (trace, perf_counter(), type(fact).__name__)

    def _not_admitted(
        self,
        error: Exception,
        message: Message,
        frame: bytes,
        caller: Caller,
        decision: Decision,
        began: float,
    ) -> None:
        if isinstance(error, Pending) and self.current is not None:
            self._keep_held(self.current, error)
        super()._not_admitted(error, message, frame, caller, decision, began)

    def _handle_session_frame(
        self, message: Message, frame: bytes, caller: Caller, began: float
    ) -> Iterator[None]:
        return self._in_turns(super()._handle_session_frame(message, frame, caller, began))

    def _deliver_to_each(
        self, message: Message, frame: bytes, caller: Caller, began: float
    ) -> Iterator[None]:
        return self._in_turns(super()._deliver_to_each(message, frame, caller, began))

    def _deliver_in_parts(
        self,
        fan_out: FanOut,
        message: Message,
        to: str,
        speaker: Speaker,
        caller: Caller,
        decision: Decision,
        began: float,
    ) -> Iterator[None]:
        rest = super()._deliver_in_parts(fan_out, message, to, speaker, caller, decision, began)
        return self._in_turns(rest)

    def _in_turns(self, rest: Iterator[None]) -> Iterator[None]:
        """Keep the current trace open until the remaining steps of its message are done."""
        trace = self.current
        if trace is None:
            return rest
        trace.hold()
        return self._turns_of(trace, rest)

    def _turns_of(self, trace: Trace, rest: Iterator[None]) -> Iterator[None]:
        try:
            while True:
                before, self.current = self.current, trace
                try:
                    next(rest)
                except StopIteration:
                    return
                finally:
                    self.current = before
                yield
        finally:
            trace.release()

    def _hand_over_traced(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        caller: Caller,
        beside: Beside = None,
    ) -> tuple[Outcome, int]:
        return delivery.hand_over(frame, listeners, sender, caller, self._beside(beside))

    def _fan_out_traced(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        beside: Beside = None,
    ) -> FanOut:
        return FanOut(frame, listeners, sender, self._beside(beside))

    def _beside(self, beside: Beside) -> Beside:
        if self.current is None or isinstance(beside, TracedDelivery):
            return beside
        return TracedDelivery(self.current, beside)


class _TracedRows(Rows):
    """Rows of the record, whose outcomes also go to the trace."""

    def __init__(self, traced: TracedPipeline, rows: Rows) -> None:
        self._traced = traced
        self._plain = rows
        self.note_fault = rows.note_fault  # type: ignore[method-assign]

    def note(
        self,
        message: Message,
        to: str,
        speaker: Speaker,
        decision: Decision,
        began: float,
        outcome: Outcome,
        listeners: int = 0,
        component: str = "",
        code: int = 0,
    ) -> None:
        """Note the outcome of a message at one recipient, as `Rows.note` does."""
        self._plain.note(message, to, speaker, decision, began, outcome, listeners, component, code)
        if self._traced.current is not None:
            self._traced.current.noted(decision, outcome, code)


class _TracedAuthorizer:
    """Times admission by the authorizer."""

    def __init__(self, traced: TracedPipeline, plain: Any) -> None:
        self._traced = traced
        self._plain = plain

    def authenticate(self, message: Message, caller: Any) -> None:
        self._timed(self._plain.authenticate, message, caller)

    def authorize(self, message: Message, caller: Any) -> tuple[Requester, Speaker]:
        known: tuple[Requester, Speaker] = self._timed(self._plain.authorize, message, caller)
        trace = self._traced.current
        if trace is not None:
            identity = known[1].identity
            trace.part.spans[-1].facts["speaker"] = (
                identity.username or identity.subject if identity else "not identified"
            )
        return known

    def _timed(self, call: Any, message: Message, caller: Any) -> Any:
        began = perf_counter()
        trace = self._traced.current
        try:
            known = call(message, caller)
        except NodeError as error:
            if trace is not None:
                trace.step("admission", began, True, code=error.code, why=error.description)
            raise
        if trace is not None:
            trace.step("admission", began)
        return known


class _TracedEnforcer:
    """Times policy decisions, and the choice of the route between the two of one recipient."""

    def __init__(self, traced: TracedPipeline, plain: Any) -> None:
        self._traced = traced
        self._plain = plain

    @property
    def is_idle(self) -> bool:
        return bool(self._plain.is_idle)

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        traced, began = self._traced, perf_counter()
        trace = traced.current
        if trace is not None and direction is Direction.OUT:
            trace.step("route", traced.routing_began, to=message.recipients[0])
        decision: Decision = self._plain.enforce(message, speaker, direction)
        if trace is not None:
            trace.step(
                f"policies {direction}",
                began,
                not decision.passes,
                effect=str(decision.effect),
                rule="/".join(decision.deciding),
                version=decision.version,
                errors="; ".join(decision.errors),
                rewritten=decision.body is not None,
            )
        if direction is Direction.IN:
            traced.routing_began = perf_counter()
        return decision


class _TracedReplies:
    """Times the answers of components, also later ones."""

    def __init__(self, traced: TracedPipeline, plain: Any) -> None:
        self._traced = traced
        self._plain = plain

    def ask(self, component: Component, message: Message, session: Listener, caller: Caller) -> int:
        trace = self._traced.current
        if trace is not None and not message.is_response:
            trace.hold()
            caller = _AnswerWatch(caller, trace, component.name)  # type: ignore[assignment]
        return int(self._plain.ask(component, message, session, caller))


class _AnswerWatch:
    """Stands in for the caller of one request, and times its answer."""

    def __init__(self, caller: Caller, trace: Trace, component: str) -> None:
        self._caller = caller
        self._trace: Trace | None = trace
        self._component = component
        self._began = perf_counter()
        self.answer_pending = caller.answer_pending
        self.charge = caller.charge

    def put(self, frame: bytes) -> None:
        """Send the answer to the caller."""
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.step("answer", self._began, component=self._component, bytes=len(frame))
            trace.release()
        self._caller.put(frame)

"""The trace of a message: its steps at one worker, with the time of each.

Made for a few messages only (steps.py); the others never get here.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time
from typing import Any, NamedTuple

import msgspec

from msgnode.core.decision import Decision
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.record import Outcome
from msgnode.core.redaction import cut, cut_id
from msgnode.core.trace_context import TraceContext, new_span, new_trace

from .ports import DeliveryResult, Listener, Response
from .return_paths import ReturnPath

MOST_DELIVERIES = 50
"""Most listeners of one message with a step of their own; further ones are only counted."""
_FAILED = (Outcome.BLOCKED, Outcome.REFUSED, Outcome.UNDELIVERABLE, Outcome.DROPPED)


class Span(msgspec.Struct, gc=False):
    """One step.

    Attributes:
        id: 16 hexadecimal digits.
        parent: id of the step that it is part of.
        name: what was done.
        at: when it began, in seconds since the epoch.
        seconds: its duration.
        is_error: whether it failed or refused.
        facts: its attributes by name.
    """

    id: str
    parent: str
    name: str
    at: float
    seconds: float
    is_error: bool = False
    facts: dict[str, Any] = {}


class TracePart(msgspec.Struct):
    """What one worker knows of a message in a trace; its first span is the message at that worker.

    Attributes:
        trace: 32 hexadecimal digits.
        worker: name of the worker.
        why: the reason for tracing it: "sender", "sampled", "watched", "response" to a traced
            request, or "link" if another worker traces it.
        parent: the span of the sender, of the request or of the other worker, "" if there is none.
        id: the message's id as sent, JSON text.
        user: name of the verified sender, "" if not verified.
        outcome: the worst outcome at any recipient.
        further: number of steps that were not kept.
        body: the body without secrets, JSON; None if it is not shown.
        tree: how the policies reached their decision; None if none decided.
    """

    trace: str
    worker: str
    why: str
    parent: str
    at: float
    seconds: float
    id: str
    type: str
    sender: str
    to: str
    session: str
    runtime: str
    user: str
    spans: list[Span]
    outcome: str = ""
    code: int = 0
    rule: str = ""
    further: int = 0
    body: Any = None
    tree: list[dict[str, Any]] | None = None


class Trace:
    """One message on its way through this worker.

    Args:
        worker: the name of this worker.
        why: see TracePart.
        context: the trace context of the sender or the request; None begins a trace.
        message: the message.
        speaker: its sender.
        began: `perf_counter` when the frame was read.
        finished: called once no more steps can follow.
    """

    def __init__(
        self,
        worker: str,
        why: str,
        context: TraceContext | None,
        message: Message,
        speaker: Speaker,
        began: float,
        finished: Callable[[Trace], None],
    ) -> None:
        self.message = message
        self.speaker = speaker
        self.frame = message.frame
        self._clock = time() - perf_counter()
        self._finished = finished
        self._holds = 1
        self._deliveries = 0
        identity = speaker.identity
        span = Span(new_span(), context.span if context else "", message.type, 0.0, 0.0)
        to = cut(", ".join(message.recipients[:10]))
        self.part = TracePart(
            trace=context.trace if context else new_trace(),
            worker=worker,
            why=why,
            parent=span.parent,
            at=began + self._clock,
            seconds=0.0,
            id=cut_id(message.id.decode()),
            type=cut(message.type),
            sender=cut(message.sender),
            to=to,
            session=speaker.session_id,
            runtime=cut(speaker.runtime_url),
            user=identity.username or identity.subject if identity else "",
            spans=[span],
        )
        span.at = self.part.at

    @property
    def context(self) -> TraceContext:
        """The trace context for what this message causes."""
        return TraceContext(self.part.trace, self.part.spans[0].id)

    @property
    def is_full(self) -> bool:
        """Whether further listeners are only counted."""
        return self._deliveries >= MOST_DELIVERIES

    def step(self, name: str, began: float, is_error: bool = False, **facts: Any) -> Span:
        """Note a step that has just ended.

        Args:
            name: what was done.
            began: `perf_counter` when it began.
            is_error: whether it failed or refused.
            facts: its attributes; empty ones are left out.
        """
        known = {name: value for name, value in facts.items() if value not in ("", None, 0, ())}
        span = Span(
            new_span(),
            self.part.spans[0].id,
            name,
            began + self._clock,
            perf_counter() - began,
            is_error,
            known,
        )
        self.part.spans.append(span)
        return span

    def delivered(self, listener: Listener, result: str, began: float, span: str) -> None:
        """Note the delivery to one listener."""
        self._deliveries += 1
        step = self.step(
            "deliver",
            began,
            result == DeliveryResult.DROPPED.value,
            session=listener.id,
            runtime=cut(listener.runtime_url),
            result=result,
            worker="" if listener.is_here else "another",
        )
        step.id = span

    def noted(self, decision: Decision, outcome: Outcome, code: int) -> None:
        """Note the outcome at a recipient; the worst of all is kept."""
        part = self.part
        is_worse = outcome in _FAILED and part.outcome not in _FAILED
        if not part.outcome or is_worse or part.outcome == outcome:
            part.outcome = outcome
            part.code = code or part.code
            part.rule = decision.deciding[-1] if decision.deciding else part.rule
        part.spans[0].is_error = part.spans[0].is_error or outcome in _FAILED or code >= 400

    def hold(self) -> None:
        """Keep the trace open for something to come: a turn of the loop, an answer, a fact."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`; the last one finishes the trace."""
        self._holds -= 1
        if self._holds == 0:
            first = self.part.spans[0]
            first.seconds = self.part.seconds = time() - self.part.at
            self._finished(self)


class TracedDelivery(NamedTuple):
    """Accompanies a traced frame, together with what else accompanies it."""

    trace: Trace
    beside: Response | ReturnPath | None

    def hand_over(self, listener: Listener, frame: bytes) -> DeliveryResult:
        """Deliver the frame to a listener, and note the result."""
        if self.trace.is_full:
            self.trace.part.further += 1
            return self._plain(listener, frame)
        trace, began, span = self.trace, perf_counter(), new_span()
        context = TraceContext(trace.part.trace, span)
        try:
            taken = listener.deliver_traced(frame, self.beside, str(context))
        except Exception as error:
            trace.delivered(listener, f"failed: {type(error).__name__}", began, span)
            raise
        trace.delivered(listener, taken.value, began, span)
        return taken

    def _plain(self, listener: Listener, frame: bytes) -> DeliveryResult:
        """Deliver as for a message that is not traced."""
        beside = self.beside
        if beside is None:
            return listener.deliver(frame)
        if isinstance(beside, Response):
            return listener.deliver_response(frame, beside)
        return listener.deliver_request(frame, beside)

"""A message that is traced: the steps it takes at one worker, with the time of each.

Made for few messages only (traced_pipeline.py); nothing here is called for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, time
from typing import Any, NamedTuple, Protocol

import msgspec

from msgnode.core.decision import Decision
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.record import Outcome
from msgnode.core.redaction import cut, cut_id
from msgnode.core.trace_context import TraceContext, new_span, new_trace

from .ports import Caller, DeliveryResult, Listener, Response
from .return_paths import ReturnPath

MOST_DELIVERIES = 50
"""Listeners of one message with a step each; of further ones the number is told."""
_FAILED = (Outcome.BLOCKED, Outcome.REFUSED, Outcome.UNDELIVERABLE, Outcome.DROPPED)


class MessageTracer(Protocol):
    """Says which messages are traced, and carries these."""

    def takes(self, message: Message, caller: Caller, began: float) -> bool:
        """Whether it has carried the message, which was taken at `began` (`perf_counter`)."""
        ...


class Span(msgspec.Struct, gc=False):
    """One step.

    Attributes:
        id: 16 hexadecimal digits, as `parent` is: the step it is part of.
        name: what was done.
        at: seconds since the epoch when it began.
        seconds: it took.
        is_error: whether it failed or refused.
        facts: what is known of it, by name.
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
        worker: its name.
        why: it is traced: "sender", "sampled", "watched", "response" of a traced request, or "link"
            if it came from another worker that traces it.
        parent: the span of the sender, of the request or of the other worker, "" if there is none.
        id: as sent, JSON text.
        user: name of the verified sender, "" without.
        outcome: the worst at any recipient.
        further: steps that were not kept.
        body: as it may be shown, JSON; None if it is not.
        tree: how the policies came to their decision; None if none decided.
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
        context: of the sender or the request; None begins a trace.
        began: `perf_counter` when the frame was taken.
        finished: is told once nothing more is to come.
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
        """What is part of this message continues from here."""
        return TraceContext(self.part.trace, self.part.spans[0].id)

    @property
    def is_full(self) -> bool:
        """Whether further listeners are counted only."""
        return self._deliveries >= MOST_DELIVERIES

    def step(self, name: str, began: float, is_error: bool = False, **facts: Any) -> Span:
        """Note a step that is over now.

        Args:
            name: what was done.
            began: `perf_counter` when it began.
            is_error: whether it failed or refused.
            facts: what is known of it; what is empty is left out.
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
        """Note that a listener was handed the message."""
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
        """Note what became of the message at a recipient: the worst is what is told of it."""
        part = self.part
        is_worse = outcome in _FAILED and part.outcome not in _FAILED
        if not part.outcome or is_worse or part.outcome == outcome:
            part.outcome = outcome
            part.code = code or part.code
            part.rule = decision.deciding[-1] if decision.deciding else part.rule
        part.spans[0].is_error = part.spans[0].is_error or outcome in _FAILED or code >= 400

    def hold(self) -> None:
        """Something of it is still to come: a turn of the loop, an answer, a fact."""
        self._holds += 1

    def release(self) -> None:
        """That has come."""
        self._holds -= 1
        if self._holds == 0:
            first = self.part.spans[0]
            first.seconds = self.part.seconds = time() - self.part.at
            self._finished(self)


class TracedDelivery(NamedTuple):
    """Goes beside a frame that is traced, around what else goes beside it."""

    trace: Trace
    beside: Response | ReturnPath | None

    def hand_over(self, listener: Listener, frame: bytes) -> DeliveryResult:
        """Hand the frame to a listener, and note how that went."""
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
        """As for a message that is not traced."""
        beside = self.beside
        if beside is None:
            return listener.deliver(frame)
        if isinstance(beside, Response):
            return listener.deliver_response(frame, beside)
        return listener.deliver_request(frame, beside)

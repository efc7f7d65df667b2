"""Chooses the messages to trace, and keeps their traces. One per worker.

Traced are
- messages whose sender marks its own `traceparent` as sampled, and a share of the others, if the
  operator has tracing enabled (OTEL_EXPORTER_OTLP_ENDPOINT, TRACE_SAMPLE_RATIO)
- messages that an operator watches in the console, only while the page is open
- responses to traced requests, and messages from another worker that traces them

Rules
- While none of that applies, the pipeline has no tracer.
- A worker traces at most MOST_A_SECOND messages per second; others are counted.
- The newest KEPT traces are in memory, for at most KEPT_SECONDS; bodies are masked as in the
  decision log, and never contain a token.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from itertools import islice
from random import random
from time import monotonic, perf_counter, time
from typing import Any

import msgspec

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Caller, DeliveryResult, Listener
from msgnode.bus.refusals import SESSION_ADDRESS
from msgnode.bus.steps import HeldTraces, Steps, TracedSteps
from msgnode.bus.trace import Trace, TracePart
from msgnode.core import addresses, messages, trace_context
from msgnode.core.decision import NOT_APPLICABLE
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.record import Outcome
from msgnode.core.token_bucket import TokenBucket
from msgnode.core.trace_context import IN_FRAME, TraceContext

_JOINED = ("response", "link")
"""Why a part of a trace may be shown to whoever may see the trace."""


class TraceFilter(msgspec.Struct, frozen=True):
    """What an operator watches; what is empty does not filter.

    Attributes:
        address: sender or recipient, with all below it.
        session: id or runtime URL of the sending session.
        user: name or subject of the verified sender.
        trace: a trace id.
    """

    address: str = ""
    session: str = ""
    user: str = ""
    type: str = ""
    outcome: str = ""
    rule: str = ""
    trace: str = ""

    def may_want(self, message: Message, speaker: Speaker) -> bool:
        """Whether a message that has just come may be one of them."""
        if self.trace or (self.type and message.type != self.type):
            return False
        if self.session and self.session not in (speaker.session_id, speaker.runtime_url):
            return False
        if self.user and (
            speaker.identity is None
            or self.user not in (speaker.identity.username, speaker.identity.subject)
        ):
            return False
        return not self.address or any(
            addresses.is_under(each, self.address) for each in (message.sender, *message.recipients)
        )

    def wants(self, part: TracePart) -> bool:
        """Whether a message that was traced is one of them."""
        if self.trace:
            return part.trace == self.trace
        if part.why in _JOINED:
            return True
        return (
            (not self.type or part.type == self.type)
            and (not self.outcome or part.outcome == self.outcome)
            and (not self.rule or part.rule == self.rule)
            and (not self.session or self.session in (part.session, part.runtime))
            and (not self.user or part.user == self.user)
            and (
                not self.address
                or any(addresses.is_under(each, self.address) for each in _parties(part))
            )
        )


def _parties(part: TracePart) -> tuple[str, ...]:
    return (part.sender, *part.to.split(", "))


MOST_A_SECOND = 100
TREES_A_SECOND = 10
KEPT = 500
KEPT_SECONDS = 3600.0
PATIENCE = 5.0
"""Seconds after the last query for which tracing on request continues."""
ANSWER_SECONDS = 60.0
"""Seconds for which the response to a traced request is waited for."""
MOST_ASKED = 2_000
LONGEST_BODY = 8_000
TOLD_BYTES = 200_000
_STRANGER = Speaker("", "")
_NOT_TRACED = ("", None)


class TracesTold(msgspec.Struct, array_like=True):
    """The traces that a worker reports.

    Attributes:
        number: the number of its last trace, after which the next query continues.
        untraced: messages not traced because there were too many, since the worker started.
        parts: the traces as JSON, the oldest first.
    """

    number: int
    untraced: int
    parts: list[bytes]


Explain = Callable[[Message, Speaker], list[dict[str, Any]]]


class Tracer:
    """Traces messages through a worker.

    Args:
        pipeline: the worker's pipeline.
        worker: its name.
        shown: masks a body for display.
        explain: explains the decision of the policies on a message.
        ratio: share of other messages that is traced, 0 to 1.
        export: called with traces that are not only watched, None if they are not exported.
        spans: counts of exported spans, by outcome.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        worker: str,
        shown: Callable[[Any], Any],
        explain: Explain,
        ratio: float = 0.0,
        export: Callable[[TracePart], None] | None = None,
        spans: Mapping[str, int] | None = None,
    ) -> None:
        self.spans = spans
        self.traced = 0
        self.untraced = 0
        self._pipeline = pipeline
        self._worker = worker
        self._shown = shown
        self._explain = explain
        self._ratio = ratio
        self._export = export
        self._looks_at_all = False  # and not only at those that say what makes them traced
        self._follows_senders = ratio > 0 or export is not None
        self._held = HeldTraces()
        self._watches: dict[TraceFilter, float] = {}
        self._asked: OrderedDict[tuple[str, str], tuple[TraceContext, float]] = OrderedDict()
        self._ring: deque[TracePart] = deque(maxlen=KEPT)
        self._number = 0
        self._budget = TokenBucket(MOST_A_SECOND)
        self._trees = TokenBucket(TREES_A_SECOND)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The worker's parts are all in place."""
        self._attach()

    # --- for the console --------------------------------------------------------------------------

    def ask(self, wanted: TraceFilter, after: int = -1) -> TracesTold:
        """The traces since the last query; wanted messages are traced from now on.

        Args:
            wanted: which messages.
            after: the number in the last report, -1 for all that are kept.
        """
        self._watches[wanted] = monotonic()
        self._attach()
        fresh = self._number - after if 0 <= after <= self._number else len(self._ring)
        newest = islice(reversed(self._ring), min(fresh, len(self._ring)))
        told: list[bytes] = []
        room = TOLD_BYTES
        for part in newest:
            if wanted.wants(part):
                text = msgspec.json.encode(part)
                room -= len(text)
                if room < 0:
                    break
                told.append(text)
        return TracesTold(self._number, self.untraced, told[::-1])

    # --- for the bus ------------------------------------------------------------------------------

    def takes(
        self, message: Message, caller: Caller, began: float, steps: Steps
    ) -> TracedSteps | None:
        """The steps of a message that is traced, None for any other."""
        if not (
            self._looks_at_all
            or IN_FRAME in message.frame
            or caller.traceparent
            or (message.is_response and self._asked)
            or self._held
        ):
            return None
        if self._held:
            held = self._held.take(message.frame)
            if held is not None:
                return TracedSteps(held, steps, self._held)
        why, context = self._reason(message, caller)
        if not why:
            return None
        if not self._budget.take():
            self.untraced += 1
            return None
        trace = Trace(self._worker, why, context, message, caller.speaker, began, self._finished)
        self._expect_response(trace)
        return TracedSteps(trace, steps, self._held)

    def arrived(
        self,
        traceparent: str,
        frame: bytes,
        session: Listener | None,
        taken: DeliveryResult | None,
        worker: str,
    ) -> None:
        """A session of this worker was handed a frame that another worker traces."""
        context = trace_context.parse(traceparent)
        if context is None or not self._budget.take():
            self.untraced += 1
            return
        began = perf_counter()
        try:
            message = messages.parse(frame)
        except InvalidFrame as error:
            FAULTS.note("worker link", error)
            return
        trace = Trace(self._worker, "link", context, message, _STRANGER, began, self._finished)
        if session is None or taken is None:
            outcome = Outcome.UNDELIVERABLE if session is None else Outcome.REFUSED
        else:
            trace.delivered(session, taken.value, began, trace_context.new_span())
            outcome = _OUTCOMES[taken]
        trace.part.spans[0].facts["from worker"] = worker
        trace.noted(NOT_APPLICABLE, outcome, 0)
        self._expect_response(trace)
        trace.release()

    def _reason(self, message: Message, caller: Caller) -> tuple[str, TraceContext | None]:
        """Why a message is traced, "" if it is not, and its trace context."""
        if message.is_response and self._asked:
            asked = self._asked.pop((message.recipients[0], message.id_key), None)
            if asked is not None:
                return "response", asked[0]
        own = None
        if IN_FRAME in message.frame:
            own = trace_context.of_frame(message.frame)
        elif caller.traceparent:
            own = trace_context.parse(caller.traceparent)
        if self._follows_senders and own is not None and own.is_sampled:
            return "sender", own
        if self._watches:
            speaker = caller.speaker
            for each in self._watches:
                if each.may_want(message, speaker):
                    return "watched", own
        if self._ratio and own is None and random() < self._ratio:  # noqa: S311 (a sample)
            return "sampled", None
        return _NOT_TRACED

    def _expect_response(self, trace: Trace) -> None:
        """The response to a traced request is part of its trace."""
        message = trace.message
        if message.is_response or not message.id:
            return
        if len(self._asked) >= MOST_ASKED:
            self._asked.popitem(last=False)
        self._asked[message.sender, message.id_key] = (trace.context, monotonic())
        self._attach()

    def _finished(self, trace: Trace) -> None:
        part = trace.part
        self.traced += 1
        if self._export is not None and part.why != "watched":
            with FAULTS.kept_to("trace export"):
                self._export(part)
        if part.why == "watched" and not any(each.wants(part) for each in self._watches):
            return
        message = trace.message
        if message.recipients[0] != SESSION_ADDRESS and len(message.body) <= LONGEST_BODY:
            try:
                part.body = self._shown(message.fields())
            except NodeError:
                part.body = None
        if part.rule and part.why != "link" and self._trees.take():
            with FAULTS.kept_to("trace"):
                part.tree = self._explain(message, trace.speaker)
        self._number += 1
        self._ring.append(part)
        self._look_again()

    # --- on and off -------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Give the pipeline its tracer, or take it away."""
        is_on = self._follows_senders or bool(self._watches) or bool(self._asked)
        self._looks_at_all = bool(self._watches) or self._ratio > 0
        self._pipeline.tracer = self if is_on else None
        self._look_again()

    def _look_again(self) -> None:
        if self._timer is None and (self._watches or self._asked or self._ring):
            seconds = 1.0 if self._watches or self._asked else 60.0
            self._timer = asyncio.get_running_loop().call_later(seconds, self.turn)

    def turn(self) -> None:
        """Stop tracing what nobody asks for any more."""
        self._timer = None
        now = monotonic()
        for wanted, asked_at in tuple(self._watches.items()):
            if now - asked_at > PATIENCE:
                del self._watches[wanted]
        while self._asked:
            first = next(iter(self._asked))
            if now - self._asked[first][1] <= ANSWER_SECONDS:
                break
            del self._asked[first]
        while self._ring and self._ring[0].at < time() - KEPT_SECONDS:
            self._ring.popleft()
        self._attach()


_OUTCOMES = {
    DeliveryResult.WRITTEN: Outcome.DELIVERED,
    DeliveryResult.BEHIND: Outcome.DELIVERED,
    DeliveryResult.QUEUED: Outcome.QUEUED,
    DeliveryResult.DROPPED: Outcome.DROPPED,
}

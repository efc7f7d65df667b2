"""A traced message: what each step says, when the trace is over, and how it is handed over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from time import perf_counter, time
from typing import Any

import pytest

from msgnode.bus.ports import DeliveryResult, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.steps import AnswerWatch
from msgnode.bus.trace import MOST_DELIVERIES, Span, Trace, TracedDelivery
from msgnode.core import messages
from msgnode.core.decision import NOT_APPLICABLE, Decision, Effect
from msgnode.core.identity import Identity, Speaker
from msgnode.core.record import Outcome
from msgnode.core.trace_context import TraceContext
from tests.fakes import FakeCaller, FakeSession
from tests.stage.bus import ONE, TWO

CONTEXT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
SPAN = re.compile("[0-9a-f]{16}")
RULED = Decision(Effect.PERMIT, passes=True, auth=True, deciding=("set", "policy", "rule"))


def trace_of(
    context: TraceContext | None = None,
    identity: Identity | None = None,
    to: Any = TWO,
    finished: Callable[[Trace], None] = lambda trace: None,
    began: float | None = None,
) -> Trace:
    frame = {"id": 7, "type": "create", "from": f"{ONE}/sm", "to": to, "body": {}}
    message = messages.parse(json.dumps(frame).encode())
    speaker = Speaker("s1", ONE, identity=identity)
    taken = perf_counter() if began is None else began
    return Trace("here:1", "watched", context, message, speaker, taken, finished)


def test_a_trace_begins_with_what_is_known_of_the_message() -> None:
    now = time()
    trace = trace_of()
    part = trace.part
    assert (part.worker, part.why, part.parent, part.id) == ("here:1", "watched", "", "7")
    assert (part.type, part.sender, part.to) == ("create", f"{ONE}/sm", TWO)
    assert (part.session, part.runtime, part.user) == ("s1", ONE, "")
    assert (part.outcome, part.code, part.rule, part.further) == ("", 0, "", 0)
    assert now - 1 < part.at < time() + 1
    assert re.fullmatch("[0-9a-f]{32}", part.trace)
    assert (part.seconds, part.body, part.tree) == (0.0, None, None)
    (first,) = part.spans
    assert SPAN.fullmatch(first.id)
    assert first == Span(first.id, "", "create", part.at, 0.0)
    assert (trace.speaker.session_id, trace.message.type) == ("s1", "create")
    assert trace.context == TraceContext(part.trace, first.id)


def test_a_trace_goes_on_from_the_context_of_its_sender() -> None:
    part = trace_of(CONTEXT).part
    assert (part.trace, part.parent) == CONTEXT[:2]
    assert part.spans[0].parent == CONTEXT.span
    assert part.spans[0].id != CONTEXT.span


@pytest.mark.parametrize(
    ("identity", "user"),
    [
        (None, ""),
        (Identity("https://idp", "subject", "alice@a"), "alice@a"),
        (Identity("https://idp", "subject", ""), "subject"),
    ],
)
def test_a_verified_sender_is_told_by_name_or_else_by_subject(
    identity: Identity | None, user: str
) -> None:
    assert trace_of(identity=identity).part.user == user


def test_of_many_recipients_ten_are_told() -> None:
    many = [f"hyperty://d/{number}" for number in range(12)]
    assert trace_of(to=many).part.to == ", ".join(many[:10])


@pytest.mark.parametrize("is_error", [None, True, False])
def test_a_step_has_its_own_id_and_says_nothing_that_is_empty(is_error: bool | None) -> None:
    trace, began = trace_of(), perf_counter() - 0.5
    said = {} if is_error is None else {"is_error": is_error}
    step = trace.step("route", began, **said, to=TWO, why="", code=0, rule=None, more=(), ok=True)
    assert trace.part.spans[-1] is step
    assert SPAN.fullmatch(step.id)
    assert (step.name, step.parent) == ("route", trace.part.spans[0].id)
    assert step.is_error is bool(is_error)
    assert step.facts == {"to": TWO, "ok": True}
    assert 0.5 <= step.seconds < 5
    assert abs(step.at + step.seconds - time()) < 5
    assert trace.step("two", began).id != step.id


@pytest.mark.parametrize("result", list(DeliveryResult))
@pytest.mark.parametrize("is_here", [True, False])
def test_a_delivery_says_to_whom_where_and_how_it_went(
    result: DeliveryResult, is_here: bool
) -> None:
    trace, listener = trace_of(), FakeSession(TWO)
    listener.is_here = is_here
    trace.delivered(listener, result.value, perf_counter(), "00f067aa0ba902b7")
    step = trace.part.spans[-1]
    facts = {"session": listener.id, "runtime": TWO, "result": result.value}
    assert step.facts == facts | ({} if is_here else {"worker": "another"})
    assert (step.id, step.name) == ("00f067aa0ba902b7", "deliver")
    assert step.is_error is (result is DeliveryResult.DROPPED)


def test_of_each_trace_so_many_listeners_have_a_step() -> None:
    trace, listener = trace_of(), FakeSession(TWO)
    for _ in range(MOST_DELIVERIES - 1):
        trace.delivered(listener, "written", perf_counter(), "")
    assert not trace.is_full
    trace.delivered(listener, "written", perf_counter(), "")
    assert trace.is_full


@pytest.mark.parametrize(
    ("notes", "outcome", "code", "rule", "is_error"),
    [
        ([(RULED, Outcome.DELIVERED, 0)], "delivered", 0, "rule", False),
        ([(NOT_APPLICABLE, Outcome.ANSWERED, 399)], "answered", 399, "", False),
        ([(NOT_APPLICABLE, Outcome.ANSWERED, 400)], "answered", 400, "", True),
        ([(NOT_APPLICABLE, Outcome.DROPPED, 0)], "dropped", 0, "", True),
        # the worst of several is told, whichever is first
        (
            [(NOT_APPLICABLE, Outcome.DELIVERED, 0), (RULED, Outcome.BLOCKED, 403)],
            *("blocked", 403, "rule", True),
        ),
        (
            [(RULED, Outcome.BLOCKED, 403), (NOT_APPLICABLE, Outcome.DELIVERED, 0)],
            *("blocked", 403, "rule", True),
        ),
        (
            [(RULED, Outcome.BLOCKED, 403), (NOT_APPLICABLE, Outcome.UNDELIVERABLE, 404)],
            *("blocked", 403, "rule", True),
        ),
        # of two that are alike the later code and rule, where they have one
        (
            [(RULED, Outcome.ANSWERED, 200), (NOT_APPLICABLE, Outcome.ANSWERED, 0)],
            *("answered", 200, "rule", False),
        ),
        (
            [(NOT_APPLICABLE, Outcome.ANSWERED, 200), (RULED, Outcome.ANSWERED, 201)],
            *("answered", 201, "rule", False),
        ),
        # what is delivered is not told of what was queued before
        (
            [(RULED, Outcome.QUEUED, 0), (NOT_APPLICABLE, Outcome.DELIVERED, 200)],
            *("queued", 0, "rule", False),
        ),
    ],
)
def test_the_worst_outcome_of_all_recipients_is_told(
    notes: list[Any], outcome: str, code: int, rule: str, is_error: bool
) -> None:
    trace = trace_of()
    trace.step("last", perf_counter(), is_error=False)
    for decision, one, answered in notes:
        trace.noted(decision, one, answered)
    part = trace.part
    assert (str(part.outcome), part.code, part.rule) == (outcome, code, rule)
    assert part.spans[0].is_error is is_error


def test_a_step_that_failed_stays_the_messages_fault() -> None:
    trace = trace_of()
    trace.part.spans[0].is_error = True
    trace.noted(NOT_APPLICABLE, Outcome.DELIVERED, 0)
    assert trace.part.spans[0].is_error is True


def test_a_trace_is_over_once_all_that_was_held_has_come() -> None:
    over: list[Trace] = []
    trace = trace_of(finished=over.append, began=perf_counter() - 2)
    trace.hold()
    trace.release()
    assert over == []
    trace.release()
    assert over == [trace]
    assert 1.9 <= trace.part.seconds < 10
    assert trace.part.spans[0].seconds == trace.part.seconds
    trace.release()
    assert over == [trace]


def test_a_request_of_a_traced_caller_costs_what_it_costs_untraced() -> None:
    caller = FakeCaller()
    AnswerWatch(caller, trace_of(), "allocation").charge(3, 0)
    assert caller.charged == [(3, 0)]


class Ear(FakeSession):
    """A listener that keeps all that it is handed, or breaks."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(TWO)
        self.error = error
        self.told: list[Any] = []

    def deliver(self, frame: bytes) -> DeliveryResult:
        return self._took("plain", frame)

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        return self._took("request", frame, path)

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        return self._took("response", frame, response)

    def deliver_traced(self, frame: bytes, beside: Any, traceparent: str) -> DeliveryResult:
        return self._took("traced", frame, beside, traceparent)

    def _took(self, *told: Any) -> DeliveryResult:
        if self.error is not None:
            raise self.error
        self.told.append(told)
        return DeliveryResult.QUEUED


PATH = ReturnPath(ONE, "7", "s1", ONE)
RESPONSE = Response(ONE, "7", "s2")


@pytest.mark.parametrize("beside", [None, PATH, RESPONSE])
def test_a_traced_frame_goes_with_the_context_of_its_own_step(beside: Any) -> None:
    trace, ear = trace_of(CONTEXT), Ear()
    assert TracedDelivery(trace, beside).hand_over(ear, b"{}") is DeliveryResult.QUEUED
    step = trace.part.spans[-1]
    assert ear.told == [("traced", b"{}", beside, f"00-{CONTEXT.trace}-{step.id}-01")]
    assert (step.facts["session"], step.facts["result"]) == (ear.id, DeliveryResult.QUEUED.value)
    assert SPAN.fullmatch(step.id)
    assert 0 <= step.seconds < 5


def test_a_listener_that_fails_is_told_in_the_step_and_fails_all_the_same() -> None:
    trace, ear = trace_of(), Ear(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        TracedDelivery(trace, None).hand_over(ear, b"{}")
    step = trace.part.spans[-1]
    assert (step.facts["session"], step.facts["result"]) == (ear.id, "failed: RuntimeError")
    assert SPAN.fullmatch(step.id)
    assert 0 <= step.seconds < 5


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        (None, ("plain", b"{}")),
        (PATH, ("request", b"{}", PATH)),
        (RESPONSE, ("response", b"{}", RESPONSE)),
    ],
)
def test_a_listener_beyond_those_with_a_step_is_handed_the_frame_as_ever(
    beside: Any, told: Any
) -> None:
    trace, ear = trace_of(), Ear()
    for _ in range(MOST_DELIVERIES):
        trace.delivered(ear, "written", perf_counter(), "")
    for number in (1, 2):
        assert TracedDelivery(trace, beside).hand_over(ear, b"{}") is DeliveryResult.QUEUED
        assert trace.part.further == number
    assert ear.told == [told, told]
    assert len(trace.part.spans) == 1 + MOST_DELIVERIES

"""The steps of the pipeline that can be timed, and those that time themselves.

The pipeline calls the steps of a `Steps` value. A traced message has its own (`TracedSteps`), which
do the same and note in its trace how long that took. The tracer (monitoring/tracer.py) chooses the
messages that are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from msgnode.core.decision import Decision, Direction
from msgnode.core.errors import NodeError
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome

from .delivery import FanOut
from .ports import Caller, Component, Listener, Requester, Response
from .return_paths import ReturnPath
from .trace import Trace, TracedDelivery

MOST_HELD = 100
"""Most traces of messages that wait for a fact."""


class MessageTracer(Protocol):
    """Chooses the messages to trace."""

    def takes(
        self, message: Message, caller: Caller, began: float, steps: Steps
    ) -> TracedSteps | None:
        """The steps of a message that is to be traced, None for any other.

        Args:
            message: the message.
            caller: its caller.
            began: `perf_counter` when the frame was read.
            steps: the steps of messages that are not traced.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the pipeline does at its numbered steps.

    Attributes:
        authenticate: 2, for a session frame.
        authorize: 2, for any other message.
        enforce: 3 and 5.
        hand_over: 6, to sessions.
        fan_out: 6, to several sessions.
        ask: 6, to a component.
        note: 7.
    """

    authenticate: Callable[[Message, Any], None]
    authorize: Callable[[Message, Any], tuple[Requester, Speaker]]
    enforce: Callable[[Message, Speaker, Direction], Decision]
    hand_over: Callable[..., tuple[Outcome, int]]
    fan_out: Callable[..., FanOut]
    ask: Callable[[Component, Message, Listener, Caller], int]
    note: Callable[..., None]

    def wait(self, fact: Pending) -> None:
        """The message waits for a fact, and is carried again."""

    def in_turns(self, rest: Iterator[None]) -> Iterator[None]:
        """The rest of the message, which may take several turns of the loop."""
        return rest

    def release(self) -> None:
        """The message is carried."""


class TracedSteps:
    """The steps of one traced message, in the place of `Steps`.

    Args:
        trace: is told of each step.
        plain: the steps of messages that are not traced.
        held: the traces of messages that wait for a fact.
    """

    def __init__(self, trace: Trace, plain: Steps, held: HeldTraces) -> None:
        self._trace = trace
        self._plain = plain
        self._held = held
        self._routing_began = 0.0

    def release(self) -> None:
        """The message is carried; its trace is over unless something is still to come."""
        self._trace.release()

    def authenticate(self, message: Message, caller: Any) -> None:
        """Time the admission of a session frame."""
        self._admitted(self._plain.authenticate, message, caller)

    def authorize(self, message: Message, caller: Any) -> tuple[Requester, Speaker]:
        """Time the admission of a message."""
        known: tuple[Requester, Speaker] = self._admitted(self._plain.authorize, message, caller)
        identity = known[1].identity
        self._trace.part.spans[-1].facts["speaker"] = (
            identity.username or identity.subject if identity else "not identified"
        )
        return known

    def _admitted(self, call: Callable[[Message, Any], Any], message: Message, caller: Any) -> Any:
        began = perf_counter()
        try:
            known = call(message, caller)
        except NodeError as error:
            self._trace.step("admission", began, True, code=error.code, why=error.description)
            raise
        self._trace.step("admission", began)
        return known

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """Time a policy decision, and the choice of the route between the two of a recipient."""
        trace, began = self._trace, perf_counter()
        if direction is Direction.OUT:
            trace.step("route", self._routing_began, to=message.recipients[0])
        decision = self._plain.enforce(message, speaker, direction)
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
            self._routing_began = perf_counter()
        return decision

    def hand_over(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        caller: Caller,
        beside: Response | ReturnPath | None = None,
    ) -> tuple[Outcome, int]:
        """Time each delivery."""
        traced = TracedDelivery(self._trace, beside)
        return self._plain.hand_over(frame, listeners, sender, caller, traced)

    def fan_out(
        self,
        frame: bytes,
        listeners: tuple[Listener, ...],
        sender: Listener,
        beside: Response | ReturnPath | None = None,
    ) -> FanOut:
        """Time each delivery."""
        return self._plain.fan_out(frame, listeners, sender, TracedDelivery(self._trace, beside))

    def ask(self, component: Component, message: Message, session: Listener, caller: Caller) -> int:
        """Time the answer of a component, also a later one."""
        if not message.is_response:
            self._trace.hold()
            caller = AnswerWatch(caller, self._trace, component.name)  # type: ignore[assignment]
        return self._plain.ask(component, message, session, caller)

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
        """Note the outcome at a recipient in the trace as well."""
        self._plain.note(message, to, speaker, decision, began, outcome, listeners, component, code)
        self._trace.noted(decision, outcome, code)

    def wait(self, fact: Pending) -> None:
        """Keep the trace until the message is carried again."""
        self._held.keep(self._trace, fact)

    def in_turns(self, rest: Iterator[None]) -> Iterator[None]:
        """Keep the trace open until the rest of the message is done."""
        self._trace.hold()
        return self._released_after(rest)

    def _released_after(self, rest: Iterator[None]) -> Iterator[None]:
        try:
            yield from rest
        finally:
            self._trace.release()


class HeldTraces:
    """The traces of messages that wait for a fact, by the frame: the last MOST_HELD of them."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Trace, float, str]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, trace: Trace, fact: Pending) -> None:
        """Keep the trace of a message that waits."""
        if len(self._held) >= MOST_HELD:
            self._held.pop(next(iter(self._held)))[0].release()
        trace.hold()
        self._held[id(trace.frame)] = (trace, perf_counter(), type(fact).__name__)

    def take(self, frame: bytes) -> Trace | None:
        """The trace of a frame that waited and is carried again, None if it is not traced."""
        held = self._held.pop(id(frame), None)
        if held is None or held[0].frame is not frame:
            return None
        trace, began, fact = held
        trace.step("wait", began, fact=fact)
        return trace


class AnswerWatch:
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

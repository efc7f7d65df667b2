"""Answers of components: given at once, or later without blocking anybody.

Every request gets exactly one frame: the component's answer, an error, or 504 after the time limit.
A component's answer passes the outbound policies. With several workers a 200 means that the change
holds everywhere: the answer waits until every worker routes as this one does, or can find out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.errors import (
    Forbidden,
    GatewayTimeout,
    InternalFault,
    NodeError,
    Unavailable,
)
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Origin, Speaker
from msgnode.core.messages import Message

from .ports import Body, Caller, Component, Enforcer, Listener
from .writing import Barrier, Findable, after_barrier, no_barrier

log = logging.getLogger(__name__)

ANSWER_TIMEOUT = 14.0
"""Less than the 15 s for which the field's buses wait, so that 504 reaches who asked."""
_COMPONENT = Speaker(session_id="", runtime_url="", origin=Origin.COMPONENT)


class _Asked:
    """A request whose answer is pending."""

    __slots__ = ("caller", "component", "is_over", "limit", "message", "session", "task")

    def __init__(
        self, component: Component, message: Message, session: Listener, caller: Caller
    ) -> None:
        self.component = component
        self.message = message
        self.session = session
        self.caller = caller
        self.is_over = False
        self.limit: asyncio.TimerHandle | None = None
        self.task: asyncio.Future[Body] | None = None


class Replies:
    """Asks components, and sends their answers.

    Args:
        enforcer: decides on each answer.
        timeout: seconds for an answer that does not come at once.
        barrier: what answers of a component with `tells_workers` wait for: until every worker can
            find the change, and those that knew otherwise know it.
        findable: the same for Findable answers: until every worker can find what they name.
    """

    def __init__(
        self,
        enforcer: Enforcer,
        timeout: float,
        barrier: Barrier = no_barrier,
        findable: Barrier | None = None,
    ) -> None:
        self._barrier = barrier
        self._findable = findable or barrier
        self._enforcer = enforcer
        self._timeout = timeout

    def ask(self, component: Component, message: Message, session: Listener, caller: Caller) -> int:
        """Have a component answer; return the code of the answer, 0 if it comes later or never."""
        if message.is_response:
            return 0
        try:
            if (cost := component.cost(message)) > 0:
                caller.charge(cost, 0)
            answer = component.answer(message, session)
        except Exception as error:
            return self._fail(component, message, caller, error)
        if isinstance(answer, dict):
            everywhere = self._barrier_of(answer)() if component.tells_workers else None
            if everywhere is None:
                return self._give(component, message, caller, answer)
            asked = self._begin(component, message, session, caller)
            everywhere.add_done_callback(lambda _: self._conclude(asked, answer))
            return 0
        asked = self._begin(component, message, session, caller)
        if isinstance(answer, asyncio.Future):
            waiting: asyncio.Future[Body] = answer
            if component.cancels:
                asked.task = waiting
        else:
            waiting = asked.task = asyncio.ensure_future(_of(answer))
        waiting.add_done_callback(partial(self._finish, asked))
        return 0

    def _barrier_of(self, body: Body) -> Barrier:
        """The barrier for an answer of a component with `tells_workers`."""
        return self._findable if isinstance(body, Findable) else self._barrier

    def _begin(
        self, component: Component, message: Message, session: Listener, caller: Caller
    ) -> _Asked:
        caller.answer_pending(+1)
        asked = _Asked(component, message, session, caller)
        loop = asyncio.get_running_loop()
        asked.limit = loop.call_later(self._timeout, self._late, asked)
        return asked

    def _late(self, asked: _Asked) -> None:
        """Answer 504 at the time limit; the component revokes what it completes afterwards."""
        asked.is_over = True
        if asked.task is not None:
            asked.task.cancel()
        asked.caller.answer_pending(-1)
        late = GatewayTimeout(f"{asked.component.name} did not answer in time.")
        self._fail(asked.component, asked.message, asked.caller, late)

    def _finish(self, asked: _Asked, waiting: asyncio.Future[Body]) -> None:
        error = None if waiting.cancelled() else waiting.exception()
        if error is None and not waiting.cancelled():
            body = waiting.result()
            conclude = partial(self._conclude, asked, body)
            if asked.component.tells_workers:
                after_barrier(self._barrier_of(body), conclude)
            else:
                conclude()
            return
        if asked.is_over:
            return
        self._end(asked)
        given_up = Unavailable("The request was given up.")
        self._fail(asked.component, asked.message, asked.caller, error or given_up)

    def _conclude(self, asked: _Asked, body: Body) -> None:
        if asked.is_over:
            with FAULTS.kept_to("session"):
                asked.component.revoke(asked.message, body, asked.session)
            return
        self._end(asked)
        self._give(asked.component, asked.message, asked.caller, body)

    def _end(self, asked: _Asked) -> None:
        if asked.limit is not None:
            asked.limit.cancel()
        asked.caller.answer_pending(-1)

    def _give(self, component: Component, message: Message, caller: Caller, body: Body) -> int:
        frame = messages.reply(message, body)
        component.info.answered += 1
        if not self._enforcer.is_idle:
            answer = messages.parse(frame)
            decision = self._enforcer.enforce(answer, _COMPONENT, Direction.OUT)
            if not decision.passes:
                blocked = Forbidden(decision.reason or "Blocked by policy")
                caller.put(messages.reply(message, messages.error_body(blocked)))
                return blocked.code
            frame = answer.forwarded(message.sender, decision.auth, body=decision.body)
        caller.put(frame)
        return int(body.get("code", 200))

    def _fail(
        self, component: Component, message: Message, caller: Caller, error: BaseException
    ) -> int:
        if not isinstance(error, NodeError):
            log.error("A component failed.", exc_info=error, extra={"component": component.name})
            component.info.last_error = repr(error)[:500]
            error = InternalFault()
        else:
            component.info.last_error = error.description[:500]
        component.info.failed += 1
        caller.put(messages.reply(message, messages.error_body(error)))
        return error.code


async def _of(answer: Awaitable[Body]) -> Body:
    return await answer

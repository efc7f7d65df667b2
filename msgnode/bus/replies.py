"""Answers of components: given at once, or later without holding up anybody.

Every answer ends in exactly one frame to the caller: the component's, an error's, or 504 once the
limit is over. A component's answer passes the policies on its way out. With several workers it is
given once all of them route what this one does: a 200 means that it holds everywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from functools import partial

from msgnode.core import messages
from msgnode.core.decision import Direction
from msgnode.core.errors import Forbidden, GatewayTimeout, InternalFault, NodeError
from msgnode.core.identity import Origin, Speaker
from msgnode.core.messages import Message

from .ports import Body, Caller, Component, Enforcer, Listener
from .writing import Barrier, after_barrier, no_barrier

log = logging.getLogger(__name__)

_COMPONENT = Speaker(session_id="", runtime_url="", origin=Origin.COMPONENT)


class Replies:
    """Asks components, and sends what they answer.

    An answer waits until the barrier is passed: until all workers know what it says. `timeout` is
    in seconds.
    """

    def __init__(self, enforcer: Enforcer, timeout: float, barrier: Barrier = no_barrier) -> None:
        self._enforcer = enforcer
        self._timeout = timeout
        self._barrier = barrier

    def ask(self, component: Component, message: Message, session: Listener, caller: Caller) -> int:
        """Have a component answer; the code of the answer, 0 if it comes later or never."""
        if message.is_response:
            return 0
        try:
            answer = component.answer(message, session)
        except Exception as error:
            return self._fail(component, message, caller, error)
        if isinstance(answer, dict):
            everywhere = self._barrier()
            if everywhere is None:
                return self._give(component, message, caller, answer)
            caller.answer_pending(+1)
            give = partial(self._conclude, component, message, caller, answer)
            everywhere.add_done_callback(lambda _: give())
            return 0
        caller.answer_pending(+1)
        if isinstance(answer, asyncio.Future):  # of the group writer, which has its own limit
            waiting = answer
        else:
            waiting = asyncio.ensure_future(self._in_time(answer))
        waiting.add_done_callback(partial(self._finish, component, message, caller))
        return 0

    async def _in_time(self, answer: Awaitable[Body]) -> Body:
        async with asyncio.timeout(self._timeout):
            return await answer

    def _finish(
        self, component: Component, message: Message, caller: Caller, waiting: asyncio.Future[Body]
    ) -> None:
        error = None if waiting.cancelled() else waiting.exception()
        if error is None and not waiting.cancelled():
            give = partial(self._conclude, component, message, caller, waiting.result())
            after_barrier(self._barrier, give)
            return
        caller.answer_pending(-1)
        if error is None:
            return
        if isinstance(error, TimeoutError):
            late = GatewayTimeout(f"{component.name} did not answer in time.")
            self._fail(component, message, caller, late)
        else:
            self._fail(component, message, caller, error)

    def _conclude(self, component: Component, message: Message, caller: Caller, body: Body) -> None:
        caller.answer_pending(-1)
        self._give(component, message, caller, body)

    def _give(self, component: Component, message: Message, caller: Caller, body: Body) -> int:
        frame = messages.reply(message, body)
        component.card.answered += 1
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
            component.card.last_error = repr(error)[:500]
            error = InternalFault()
        else:
            component.card.last_error = error.description[:500]
        component.card.failed += 1
        caller.put(messages.reply(message, messages.error_body(error)))
        return error.code

"""Who waits for the answer to which request.

Rules
- The answer to a request is known by the pair (`from`, text of `id`), never by the two joined.
- The wait begins when the request is taken from the queue. A provisional answer (below 200) begins
  it anew, at most MAX_RENEWALS times; a final one ends it.
- An answer that came through another stub than the request went out through is none; what the home
  stub brings may be one (`message_bus.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .messages import Message, answer_to, code_of, is_final

OnAnswer = Callable[[Message], None]

ANSWER_SECONDS = 15.0
MAX_RENEWALS = 10


@dataclass(slots=True)
class Wait:
    """A request whose answer somebody waits for. `stub` is the one it went out through."""

    request: Message
    on_answer: OnAnswer
    seconds: float
    renewals: int = 0
    timer: asyncio.TimerHandle | None = None
    stub: str = ""
    is_published: bool = False  # somebody here was asked as well

    def stop(self) -> None:
        """Its time runs no more."""
        if self.timer is not None:
            self.timer.cancel()


class Answers:
    """The waits of one bus."""

    def __init__(
        self,
        call: Callable[[OnAnswer, Message], None],
        timed_out: Callable[[Message], None],
        failed: Callable[[Message], None],
    ) -> None:
        """The waits of nobody yet.

        Args:
            call: calls who waits, and reports it if that raises.
            timed_out: hears of each request that stays unanswered.
            failed: hears of each answer that is an error.
        """
        self.waits: dict[tuple[str, str], Wait] = {}
        self._call = call
        self._hear_timed_out = timed_out
        self._hear_failed = failed

    def expect(self, request: Message, on_answer: OnAnswer, seconds: float) -> None:
        """Call `on_answer` with the answers to a request; 0 seconds wait without end."""
        self.waits[request["from"], str(request["id"])] = Wait(request, on_answer, seconds)

    def to(self, request: Message) -> Wait | None:
        """The wait for the answer to a request."""
        return self.waits.get((request["from"], str(request["id"])))

    def forget(self, address: str, id_: Any) -> None:
        """Wait no longer for that answer."""
        wait = self.waits.pop((address, str(id_)), None)
        if wait is not None:
            wait.stop()

    def end_all_of(self, address: str, code: int, text: str) -> None:
        """End the waits of one sender, each with this answer."""
        for key in [key for key in self.waits if key[0] == address]:
            wait = self.waits.pop(key)
            wait.stop()
            self._call(wait.on_answer, answer_to(wait.request, code, text))

    def end_all(self, code: int, text: str) -> None:
        """End every wait with this answer."""
        for address in {address for address, _ in self.waits}:
            self.end_all_of(address, code, text)

    def begin(self, request: Message) -> None:
        """A request was taken from the queue: its time runs."""
        wait = self.to(request)
        if wait is not None and wait.seconds and wait.timer is None:
            self._start_timer(wait)

    def take(self, answer: Message, via: str = "") -> bool:
        """Give an answer to who waits for it; whether somebody did."""
        key = (answer["to"], str(answer.get("id")))
        wait = self.waits.get(key)
        if wait is None or (wait.stub != via and (via or not wait.is_published)):
            return False
        code = code_of(answer)
        if code >= 400:
            self._hear_failed(answer)
        body = answer.get("body")
        answer["body"] = {**body, "code": code} if isinstance(body, dict) else {"code": code}
        if is_final(code):
            del self.waits[key]
            wait.stop()
        elif wait.timer is not None and wait.renewals < MAX_RENEWALS:
            wait.renewals += 1
            wait.stop()
            self._start_timer(wait)
        self._call(wait.on_answer, answer)
        return True

    def _start_timer(self, wait: Wait) -> None:
        loop = asyncio.get_running_loop()
        wait.timer = loop.call_later(wait.seconds, self._timed_out, wait)

    def _timed_out(self, wait: Wait) -> None:
        if self.to(wait.request) is not wait:
            return
        self.forget(wait.request["from"], wait.request["id"])
        self._hear_timed_out(wait.request)
        body = {"code": 408, "desc": "Response timeout!", "description": "Response timeout!"}
        answer = {"id": wait.request["id"], "type": "response"}
        self._call(wait.on_answer, {**answer, "body": {**body, "value": wait.request}})

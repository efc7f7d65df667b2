"""What both buses of a runtime have in common: listeners, answers, and one queue in order.

Rules
- A post never runs a listener inside its caller: it is queued, and the event loop's next turn
  empties the queue in order.
- Each listener gets a copy of its own. One that raises is reported and stops nobody else.
- A listener that is removed while a message is delivered is not called any more.
- Every message has an id; who waits for an answer is `answers.py`'s to know.
- An answer that nobody waits for goes to the listeners of its `to`; without any it is counted, and
  one that says an error is reported. So is everything else that would be lost in silence.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgnode.core import addresses

from .answers import ANSWER_SECONDS, Answers, OnAnswer
from .arguments import check_function, check_text, wrong
from .faults import Fault, OnError, log_error
from .listeners import Binding, InOrder, Listener, Listening
from .messages import (
    BadMessage,
    Message,
    answer_to,
    body_of,
    code_of,
    copy_of,
    is_answerable,
    is_final,
    recipients,
    size_of,
)

MAX_ERRORS = 20  # that are kept for who debugs
MAX_TEXT = 300  # characters of one
MAX_QUEUED = 100_000  # messages that wait for their turn on one bus
_TURN = 1_000  # messages delivered before the event loop has its turn again

log = logging.getLogger(__name__)


class Bus:
    """The common part; `_route` says what becomes of a message that is taken from the queue."""

    def __init__(self, max_size: int = 0) -> None:
        self.max_size = max_size  # characters of one message, 0 for no limit
        self.counters: Counter[str] = Counter()
        self.errors: deque[dict[str, str]] = deque(maxlen=MAX_ERRORS)  # at, reason, text
        self._on_error: OnError = log_error
        self._listeners: dict[str, list[Listening]] = {}
        self._answers = Answers(self._call, self._timed_out, self._failed)
        self._queue: deque[tuple[Message, str, int]] = deque()
        self._is_scheduled = False
        # Two runtimes of one URL, such as tabs, do not use the same ids.
        self._ids = itertools.count(1 + secrets.randbelow(2**40))

    # --- listeners --------------------------------------------------------------------------------

    def add_listener(self, address: str, listener: Listener) -> Listening:
        """Call `listener` with every message to `address`.

        A coroutine function gets its messages one after the other, in their order.
        """
        check_text("address", address)
        check_function("listener", listener)
        call: Callable[[Message], object] = listener
        if inspect.iscoroutinefunction(listener):
            call = InOrder(self, listener)
        listening = Listening(self, address, call)
        self._listeners.setdefault(address, []).append(listening)
        return listening

    def remove_all_listeners_of(self, address: str) -> None:
        """Remove the listeners of an address, and answer 503 to what it still waits for."""
        for listening in self._listeners.pop(address, ()):
            listening.is_removed = True
        self._answers.end_all_of(address, 503, f"{address} has left the bus.")

    def has_listener(self, address: str) -> bool:
        """Whether anybody listens to exactly this address."""
        return address in self._listeners

    def number_listening(self, address: str) -> int:
        """How many listen to exactly this address."""
        return len(self._listeners.get(address, ()))

    def removed(self, listening: Listening) -> None:
        """A listener listens no more."""
        if listening.is_removed:
            return
        listening.is_removed = True
        # A new list: the old one may be walked right now.
        left = [
            each for each in self._listeners.get(listening.address, ()) if each is not listening
        ]
        if left:
            self._listeners[listening.address] = left
        else:
            self._listeners.pop(listening.address, None)

    # --- posting ----------------------------------------------------------------------------------

    def post_message(
        self, message: Message, on_answer: OnAnswer | None = None, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """Queue a message; `on_answer` is called with each answer to it.

        Args:
            message: is copied; an id is given to one that has none.
            on_answer: gets provisional answers (below 200), then one final one, at the latest
                after `seconds` an answer of code 408 from the bus itself.
            seconds: 0 waits without end.

        Returns:
            The message's id.

        Raises:
            TypeError: it is no dict.
            BadMessage: it has no sender who could be answered. Any other fault is answered.
        """
        return self._post(message, "", on_answer, seconds)

    async def request(self, message: Message, seconds: float = ANSWER_SECONDS) -> Message:
        """Post a request and wait for its final answer. Raises TimeoutError."""
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def take(answer: Message) -> None:
            if not answered.done() and is_final(code_of(answer)):
                answered.set_result(answer)

        id_ = self.post_message(message, take, seconds)
        try:
            answer = await answered
        finally:
            self.remove_response_listener(message["from"], id_)
        if "from" not in answer:
            raise TimeoutError(f"No answer from {message['to']} within {seconds:g} s.")
        return answer

    async def post_message_with_retries(self, message: Message, retries: int) -> Message:
        """Post a request again while its answer is 408 or 500, at most `retries` times more.

        Raises:
            TimeoutError: the last try was not answered either.
        """
        for is_last in (*(False for _ in range(retries)), True):
            try:
                answer = await self.request({**message, "id": 0})
            except TimeoutError:
                if is_last:
                    raise
                continue
            if is_last or code_of(answer) not in (408, 500):
                return answer
        raise AssertionError("unreachable")

    def add_response_listener(self, address: str, id_: Any, on_answer: OnAnswer) -> None:
        """Call `on_answer` with the answers to the request `id_` of `address`; no time-out."""
        request = {"id": id_, "type": "execute", "from": address, "to": address}
        self._answers.expect(request, on_answer, 0)

    def remove_response_listener(self, address: str, id_: Any) -> None:
        """Wait no longer for that answer."""
        self._answers.forget(address, id_)

    def _post(
        self,
        message: Message,
        via: str,
        on_answer: OnAnswer | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        """Queue a message that came through the stub `via`, "" for one from inside."""
        try:
            taken, size = copy_of(message)
            if not taken.get("id"):
                taken["id"] = next(self._ids)
            to = recipients(taken)
        except (BadMessage, AttributeError) as error:
            if not isinstance(message, dict):
                raise wrong("message", "a dict with type, from and to", message) from None
            return self._refuse_bad(message, str(error), on_answer)
        if on_answer is not None:
            self._answers.expect(taken, on_answer, seconds)
        # The estimate is at least half of what JSON makes of usual text.
        if self.max_size and size > self.max_size // 2 and size_of(taken) > self.max_size:
            taken["to"] = to[0]
            text = f"The message is larger than {self.max_size} bytes."
            self.undeliverable(taken, 413, text)
            return taken["id"]
        if len(self._queue) + len(to) > MAX_QUEUED:
            taken["to"] = to[0]
            text = f"More than {MAX_QUEUED} messages wait on the bus."
            self.undeliverable(taken, 503, text)
            return taken["id"]
        for address in to[1:]:
            self._enqueue(({**copy_of(taken)[0], "to": address}), via, size)
        taken["to"] = to[0]
        self._enqueue(taken, via, size)
        return taken["id"]

    def _enqueue(self, message: Message, via: str, size: int) -> None:
        self._queue.append((message, via, size))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        queue = self._queue
        try:
            for _ in range(_TURN):
                if not queue:
                    return
                self._process(*queue.popleft())
        finally:  # a fault of the bus ends one message, never the queue
            self._is_scheduled = bool(queue)
            if queue:
                asyncio.get_running_loop().call_soon(self._drain)

    def _process(self, message: Message, via: str, size: int) -> None:
        if self._answers.waits and not via and message["type"] != "response":
            self._answers.begin(message)
        try:
            self._route(message, via, size)
        except Exception as error:
            self.report("bus.failed", f"The bus failed: {error!r}", message, error)
            self.undeliverable(message, 500, "The bus of the runtime failed.")

    def _route(self, message: Message, via: str, size: int) -> None:
        raise NotImplementedError

    # --- delivery ---------------------------------------------------------------------------------

    def _found(self, to: str) -> list[Listening] | None:
        """The listeners of an address, or of a runtime's address in its other spelling."""
        found = self._listeners.get(to)
        if found is None and (twin := addresses.runtime_twin(to)):
            found = self._listeners.get(twin)
        return found

    def _give(self, found: list[Listening], message: Message) -> None:
        """Hand a message to listeners; the last one gets the object itself."""
        last = len(found) - 1
        for index, listening in enumerate(tuple(found)):
            if not listening.is_removed:
                given = message if index == last else copy_of(message)[0]
                self._call(listening.call, given)

    def _call(self, call: Callable[[Message], object], message: Message) -> None:
        try:
            call(message)
        except Exception as error:
            self.report(
                "listener.failed", f"A listener of {message.get('to')} raised.", message, error
            )

    def undeliverable(self, message: Message, code: int, text: str) -> None:
        """Tell the sender; what is not answered (an answer, an event) is counted."""
        self.counters[f"undeliverable.{code}"] += 1
        self._keep(f"undeliverable.{code}", text, message)
        if is_answerable(message):
            self._answer(answer_to(message, code, text))
        elif message["type"] == "response":
            self.unclaimed(message)

    def _answer(self, answer: Message) -> None:
        """Bring an answer of the bus itself to the sender of the request."""
        self._enqueue(answer, "", 0)

    def unclaimed(self, answer: Message) -> None:
        """Count an answer that nobody takes; one that says an error is reported."""
        self.counters["answers.unexpected"] += 1
        if (code := code_of(answer)) >= 400:
            body = body_of(answer)
            words = body.get("desc") or body.get("description") or "no words"
            text = f"{answer['from']} answered {code} to {answer['to']}: {words}"
            self._tell(Fault("answers.unexpected", text, answer))

    def _refuse_bad(self, message: Any, text: str, on_answer: OnAnswer | None) -> Any:
        """Answer a message whose header is wrong; raise where nobody can be answered."""
        sender = message.get("from") if isinstance(message, dict) else None
        if not isinstance(sender, str) or not sender:
            raise BadMessage(text)
        to = message.get("to")
        known = to if isinstance(to, str) else ""
        head = {"id": message.get("id"), "type": "execute", "from": sender, "to": known}
        if not isinstance(head["id"], (int, str)) or not head["id"]:
            head["id"] = next(self._ids)
        if on_answer is not None:
            self._answers.expect(head, on_answer, 0)
        self.counters["undeliverable.400"] += 1
        self._answer(answer_to(head, 400, text))
        return head["id"]

    def on_error(self, listener: OnError) -> None:
        """Hear of what would otherwise be lost; without a listener it is logged."""
        self._on_error = listener

    def report(
        self,
        reason: str,
        text: str,
        message: Message | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Count a fault and tell the error hook of it."""
        self.counters[reason] += 1
        self._tell(Fault(reason, text, message, error))

    def _timed_out(self, request: Message) -> None:
        self.counters["answers.timeout"] += 1
        self._keep("answers.timeout", "No answer came.", request)

    def _failed(self, answer: Message) -> None:
        body = body_of(answer)
        words = body.get("desc") or body.get("description") or "no words"
        self._keep(f"answer.{code_of(answer)}", str(words), answer)

    def _keep(self, reason: str, text: str, message: Message | None) -> None:
        """Keep what went wrong for who debugs."""
        if message is not None:
            get = message.get
            text = f"{text} ({get('type')} {get('from')} -> {get('to')})"
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.errors.append({"at": at, "reason": reason, "text": text[:MAX_TEXT]})

    def _tell(self, fault: Fault) -> None:
        text = f"{fault.text}: {fault.error!r}" if fault.error else fault.text
        self._keep(fault.reason, text, fault.message)
        try:
            self._on_error(fault)
        except Exception:
            log.exception("The error hook raised.")

    def bind(self, out_address: str, in_address: str, target: Bus) -> Binding:
        """Hand what comes to `out_address` to another bus, and what comes to `in_address` back.

        Args:
            out_address: listened to on this bus.
            in_address: listened to on the other one.
            target: the other bus.
        """
        return Binding(
            self.add_listener(out_address, lambda message: target.post_message(message)),
            target.add_listener(in_address, lambda message: self.post_message(message)),
        )

"""What both buses of a runtime have in common: listeners, answers, and one queue in order.

Rules
- A post never runs a listener inside its caller: it is queued, and the event loop's next turn
  empties the queue in order.
- Each listener gets a copy of its own. One that raises is reported and stops nobody else.
- A listener that is removed while a message is delivered is not called any more.
- Every message has an id. The answer to a request is known by the pair (`from`, text of `id`).
- The wait for an answer begins when the request is taken from the queue. A provisional answer
  (below 200) begins it anew, at most MAX_RENEWALS times.
- An answer that nobody waits for goes to the listeners of its `to`; without any it is counted, and
  one that says an error is reported. So is everything else that would be lost in silence.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgnode.core import addresses

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

Listener = Callable[[Message], None] | Callable[[Message], Awaitable[None]]
OnAnswer = Callable[[Message], None]

ANSWER_SECONDS = 15.0
MAX_RENEWALS = 10
MAX_QUEUED = 100_000  # messages that wait for their turn on one bus
MAX_LISTENER_QUEUED = 1_000  # messages that wait for one coroutine listener
_TURN = 1_000  # messages delivered before the event loop has its turn again

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """What nobody else would hear of.

    reason   the name of its counter, such as "listener.failed" or "answers.unexpected"
    text     what happened, for a log
    message  the message it is about, if there is one
    error    what was raised, if anything was
    """

    reason: str
    text: str
    message: Message | None = None
    error: BaseException | None = None


OnError = Callable[[Fault], None]


def log_error(fault: Fault) -> None:
    """The error hook of a bus that was given none: a warning in the log."""
    log.warning("%s: %s", fault.reason, fault.text, exc_info=fault.error)


class Listening:
    """A listener on an address, until remove()."""

    __slots__ = ("_bus", "address", "call", "is_removed")

    def __init__(self, bus: Bus, address: str, call: Callable[[Message], object]) -> None:
        self._bus = bus
        self.address = address
        self.call = call
        self.is_removed = False

    def remove(self) -> None:
        """Listen no more, at once. Once is enough; again does nothing."""
        self._bus._removed(self)


class Binding(NamedTuple):
    """Two buses joined at two addresses, until unbind()."""

    this_listener: Listening
    target_listener: Listening

    def unbind(self) -> None:
        """Join them no more."""
        self.this_listener.remove()
        self.target_listener.remove()


@dataclass(slots=True)
class _Wait:
    """A request whose answer somebody waits for. `stub` is the one it went out through."""

    request: Message
    on_answer: OnAnswer
    seconds: float
    renewals: int = 0
    timer: asyncio.TimerHandle | None = None
    stub: str = ""


class Bus:
    """The common part; `_route` says what becomes of a message that is taken from the queue."""

    def __init__(self, max_size: int = 0) -> None:
        self.max_size = max_size  # characters of one message, 0 for no limit
        self.counters: Counter[str] = Counter()
        self._on_error: OnError = log_error
        self._listeners: dict[str, list[Listening]] = {}
        self._waits: dict[tuple[str, str], _Wait] = {}
        self._queue: deque[tuple[Message, str, int]] = deque()
        self._is_scheduled = False
        self._ids = itertools.count(1)

    # --- listeners --------------------------------------------------------------------------------

    def add_listener(self, address: str, listener: Listener) -> Listening:
        """Call `listener` with every message to `address`.

        A coroutine function gets its messages one after the other, in their order.
        """
        call: Callable[[Message], object] = listener
        if inspect.iscoroutinefunction(listener):
            call = _InOrder(self, listener)
        listening = Listening(self, address, call)
        self._listeners.setdefault(address, []).append(listening)
        return listening

    def remove_all_listeners_of(self, address: str) -> None:
        """Remove the listeners of an address, and answer 503 to what it still waits for."""
        for listening in self._listeners.pop(address, ()):
            listening.is_removed = True
        for key in [key for key in self._waits if key[0] == address]:
            wait = self._waits.pop(key)
            if wait.timer is not None:
                wait.timer.cancel()
            text = f"{address} has left the bus."
            self._call(wait.on_answer, answer_to(wait.request, 503, text))

    def has_listener(self, address: str) -> bool:
        """Whether anybody listens to exactly this address."""
        return address in self._listeners

    def _removed(self, listening: Listening) -> None:
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
        self._waits[address, str(id_)] = _Wait(request, on_answer, 0)

    def remove_response_listener(self, address: str, id_: Any) -> None:
        """Wait no longer for that answer."""
        wait = self._waits.pop((address, str(id_)), None)
        if wait is not None and wait.timer is not None:
            wait.timer.cancel()

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
            return self._refuse_bad(message, str(error), on_answer)
        if on_answer is not None:
            key = (taken["from"], str(taken["id"]))
            self._waits[key] = _Wait(taken, on_answer, seconds)
        # The estimate is at least half of what JSON makes of usual text.
        if self.max_size and size > self.max_size // 2 and size_of(taken) > self.max_size:
            taken["to"] = to[0]
            text = f"The message is larger than {self.max_size} characters."
            self._undeliverable(taken, 413, text)
            return taken["id"]
        if len(self._queue) + len(to) > MAX_QUEUED:
            taken["to"] = to[0]
            text = f"More than {MAX_QUEUED} messages wait on the bus."
            self._undeliverable(taken, 503, text)
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
        for _ in range(_TURN):
            if not queue:
                self._is_scheduled = False
                return
            message, via, size = queue.popleft()
            if self._waits and not via and message["type"] != "response":
                self._begin_wait(message)
            try:
                self._route(message, via, size)
            except Exception as error:  # a fault of the bus ends one message, never the queue
                self.report("bus.failed", f"The bus failed: {error!r}", message, error)
                self._undeliverable(message, 500, "The bus of the runtime failed.")
        asyncio.get_running_loop().call_soon(self._drain)

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

    def _undeliverable(self, message: Message, code: int, text: str) -> None:
        """Tell the sender; what is not answered (an answer, an event) is counted."""
        self.counters[f"undeliverable.{code}"] += 1
        if is_answerable(message):
            self._answer(answer_to(message, code, text))
        elif message["type"] == "response":
            self._unclaimed(message)

    def _answer(self, answer: Message) -> None:
        """Bring an answer of the bus itself to the sender of the request."""
        self._enqueue(answer, "", 0)

    def _unclaimed(self, answer: Message) -> None:
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
            self._waits[sender, str(head["id"])] = _Wait(head, on_answer, 0)
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

    def _tell(self, fault: Fault) -> None:
        try:
            self._on_error(fault)
        except Exception:
            log.exception("The error hook raised.")

    def bind(self, out_address: str, in_address: str, target: Bus) -> Binding:
        """Hand what comes to `out_address` here to another bus, and what comes to `in_address`
        there back to this one."""
        return Binding(
            self.add_listener(out_address, lambda message: target.post_message(message)),
            target.add_listener(in_address, lambda message: self.post_message(message)),
        )

    # --- answers ----------------------------------------------------------------------------------

    def _begin_wait(self, message: Message) -> None:
        wait = self._waits.get((message["from"], str(message["id"])))
        if wait is not None and wait.seconds and wait.timer is None:
            self._start_timer(wait)

    def _start_timer(self, wait: _Wait) -> None:
        loop = asyncio.get_running_loop()
        wait.timer = loop.call_later(wait.seconds, self._timed_out, wait)

    def _timed_out(self, wait: _Wait) -> None:
        key = (wait.request["from"], str(wait.request["id"]))
        if self._waits.get(key) is not wait:
            return
        del self._waits[key]
        self.counters["answers.timeout"] += 1
        body = {"code": 408, "desc": "Response timeout!", "description": "Response timeout!"}
        answer = {"id": wait.request["id"], "type": "response"}
        self._call(wait.on_answer, {**answer, "body": {**body, "value": wait.request}})

    def _take_answer(self, answer: Message, via: str = "") -> bool:
        """Give an answer to who waits for it. One through another stub than the request went out
        through is no answer to it."""
        key = (answer["to"], str(answer.get("id")))
        wait = self._waits.get(key)
        if wait is None or wait.stub != via:
            return False
        code = code_of(answer)
        body = answer.get("body")
        answer["body"] = {**body, "code": code} if isinstance(body, dict) else {"code": code}
        if is_final(code):
            del self._waits[key]
            if wait.timer is not None:
                wait.timer.cancel()
        elif wait.timer is not None and wait.renewals < MAX_RENEWALS:
            wait.renewals += 1
            wait.timer.cancel()
            self._start_timer(wait)
        self._call(wait.on_answer, answer)
        return True


class _InOrder:
    """A coroutine listener: one message after the other, in a task that ends when none waits."""

    def __init__(self, bus: Bus, listener: Callable[[Message], Awaitable[None]]) -> None:
        self._bus = bus
        self._listener = listener
        self._queue: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, message: Message) -> None:
        if len(self._queue) >= MAX_LISTENER_QUEUED:
            text = (
                f"More than {MAX_LISTENER_QUEUED} messages wait for a listener of {message['to']}."
            )
            self._bus._undeliverable(message, 503, text)
            return
        self._queue.append(message)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._queue:
                message = self._queue.popleft()
                try:
                    await self._listener(message)
                except Exception as error:
                    text = f"A listener of {message.get('to')} raised."
                    self._bus.report("listener.failed", text, message, error)
        finally:
            self._task = None

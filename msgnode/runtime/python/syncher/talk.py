"""What both sides of a data object need to talk: events for the application, answers in time."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgnode.core import addresses
from msgnode.runtime.python.bus import Bus
from msgnode.runtime.python.listeners import MAX_LISTENER_QUEUED
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, body_of, code_of, is_final

from .changes import size_of
from .errors import SyncError

PATIENCE = 10.0  # seconds after which who waits is told that it goes on
AGAIN_SECONDS = 100.0
"""For which a request is repeated: as long as anybody waits for a decision."""
TRIES = 3
MOST_PATIENCE = 9  # times: a bus lets ten provisional answers prolong its wait
MAX_WHOLE = 16 * 1024 * 1024
"""Bytes of an answer in parts: more than an object and its children have."""

Body = dict[str, Any]
Decision = Body | Awaitable[Body]
Judgement = bool | None


class Item:
    """A listener of the application, until remove()."""

    def __init__(self, listeners: list[Item], call: Callable[[Any], object]) -> None:
        self._listeners = listeners
        self.call = call
        self.waiting: deque[Any] = deque()  # events, while a coroutine works on the one before
        self.task: asyncio.Task[Any] | None = None
        listeners.append(self)

    def remove(self) -> None:
        """Listen no more."""
        self.waiting.clear()
        if self in self._listeners:
            self._listeners.remove(self)


class Listeners:
    """Those of one kind of event. One that raises is reported and stops nobody."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._all: list[Item] = []

    def add(self, listener: Callable[[Any], object]) -> Item:
        """Call a function, or a coroutine function, with each event: one after the other."""
        return Item(self._all, listener)

    def tell(self, event: Any) -> None:
        """Tell all of them."""
        for item in list(self._all):
            if item not in self._all:
                continue
            if item.task is None:
                self._call(item, event)
            elif len(item.waiting) < MAX_LISTENER_QUEUED:
                item.waiting.append(event)
            else:
                text = f"More than {MAX_LISTENER_QUEUED} events wait for a listener."
                self._bus.report("listener.flood", text, None, None)

    def _call(self, item: Item, event: Any) -> None:
        try:
            done = item.call(event)
            if inspect.isawaitable(done):
                item.task = asyncio.ensure_future(_awaited(done))
                item.task.add_done_callback(lambda task: self._ended(item, task))
        except Exception as error:
            self._report(error)

    def _ended(self, item: Item, task: asyncio.Task[Any]) -> None:
        item.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error)
        while item.waiting and item.task is None:
            self._call(item, item.waiting.popleft())

    def _report(self, error: BaseException) -> None:
        self._bus.report("listener.failed", "A listener of a data object raised.", None, error)


async def _awaited(done: Awaitable[Any]) -> Any:
    return await done


def respond(bus: Bus, request: Message, body: Body) -> None:
    """Answer a request."""
    head = {"id": request["id"], "type": "response", "from": request["to"], "to": request["from"]}
    bus.post_message({**head, "body": body})


class InTime:
    """Answers requests whose decision may take its time; needs the running event loop.

    Whoever waits gets 100 every 10 s meanwhile, and 408 after 100 s.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, request: Message, decide: Callable[[], Decision]) -> None:
        """Answer with what `decide` makes: a body, or the code of its SyncError (else 500)."""
        try:
            decision = decide()
        except Exception as error:
            self._failed(request, error)
            return
        if isinstance(decision, dict):
            respond(self._bus, request, decision)
            return
        task = asyncio.create_task(self._wait(request, decision))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Decide nothing any more."""
        for task in self._tasks:
            task.cancel()

    async def _wait(self, request: Message, decision: Awaitable[Body]) -> None:
        deciding = asyncio.ensure_future(_awaited(decision))
        try:
            for _ in range(MOST_PATIENCE):
                done, _ = await asyncio.wait([deciding], timeout=PATIENCE)
                if done:
                    break
                respond(self._bus, request, {"code": 100})
            async with asyncio.timeout(PATIENCE):
                body = await deciding
        except TimeoutError:
            self._failed(request, SyncError(408, "Nobody has decided in time."))
        except Exception as error:
            self._failed(request, error)
        else:
            respond(self._bus, request, body)
        finally:
            deciding.cancel()

    def _failed(self, request: Message, error: Exception) -> None:
        named = getattr(error, "code", None)
        code = named if isinstance(named, int) and not isinstance(named, bool) else 500
        if code == 500:
            self._bus.report("listener.failed", f"{error!r}", request, error)
        self._bus.post_message(answer_to(request, code, str(error)))


def decided(judged: Judgement | Awaitable[Judgement], then: Callable[[Any], Body]) -> Decision:
    """What follows from a judgement of the application, made now or later."""
    if not inspect.isawaitable(judged):
        return then(judged)

    async def later(judging: Awaitable[Judgement]) -> Body:
        return then(await judging)

    return later(judged)


def value_of(told: Body) -> Body:
    """The value that an answer tells, {} if it is no object."""
    value = told.get("value")
    return value if isinstance(value, dict) else {}


async def ask(bus: Bus, message: Message, then: Callable[[Body], Any] | None = None) -> Any:
    """Post a request; its final answer's body.

    Args:
        bus: of the runtime.
        message: the request.
        then: makes something else of the body, before any other message comes.

    Raises:
        SyncError: it was refused.
    """
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(answer: Message) -> None:
        body, code = body_of(answer), code_of(answer)
        if answered.done() or not is_final(code):
            return
        if code >= 300:
            answered.set_exception(refused(message, answer))
            return
        try:
            answered.set_result(then(body) if then else body)
        except Exception as error:
            answered.set_exception(error)

    bus.post_message(message, take)
    return await answered


async def ask_until_answered(bus: MessageBus, message: Message) -> Body:
    """Post a request that does no harm twice, until it is answered or refused.

    It is posted again, under its id, when a connection is back with which it, or the answer, may
    have been lost, and three times in all while nobody answers (408, 500). Its final answer's body;
    raises SyncError.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + AGAIN_SECONDS
    domains = {addresses.parse(each).home for each in (bus.runtime_url, message["to"])}
    answered: asyncio.Future[Body] = loop.create_future()
    asked = dict(message)
    is_away = False
    tries_left = TRIES

    def post() -> None:
        asked["id"] = bus.post_message(asked, take)

    def take(answer: Message) -> None:
        nonlocal tries_left
        code = code_of(answer)
        if answered.done() or not is_final(code):
            return
        tries_left -= 1
        if code in (408, 500) and tries_left > 0 and loop.time() < until:
            post()
        elif code >= 300:
            answered.set_exception(refused(message, answer))
        else:
            answered.set_result(body_of(answer))

    def told(update: Message) -> None:
        nonlocal is_away
        body = body_of(update)
        resource, value = body.get("resource"), body.get("value")
        is_stub = update["from"] == bus.runtime_url and isinstance(resource, str)
        if not is_stub or "peer" in body or addresses.parse(str(resource)).home not in domains:
            return
        if value == "disconnected":
            is_away = True
        elif value == "gap" or (value == "live" and is_away):
            is_away = False
            if not answered.done() and loop.time() < until:
                post()

    listening = bus.add_listener(f"{bus.runtime_url}/status", told)
    post()
    try:
        return await answered
    finally:
        listening.remove()
        bus.remove_response_listener(message["from"], asked["id"])


def refused(message: Message, answer: Message) -> SyncError:
    """The error that an answer says."""
    body, code = body_of(answer), code_of(answer)
    text = body.get("desc") or body.get("description") or f"{message['to']} answered {code}."
    return SyncError(code, str(text), body.get("value"))


async def ask_in_parts(bus: Bus, message: Message) -> Body:
    """Post a request whose answer may come in parts, and put them together.

    The first is of a code below 200, and its value has `responses: n`; n - 1 more have parts of the
    children, MAX_WHOLE bytes together at most. Raises SyncError.
    """
    answered: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
    whole: Body = {}
    left = size = 0

    def take(answer: Message) -> None:
        nonlocal left, size
        body, code = body_of(answer), code_of(answer)
        value = value_of(body)
        if answered.done():
            return
        if code >= 300:
            answered.set_exception(refused(message, answer))
            return
        if whole:
            size += size_of(body)
            if size > MAX_WHOLE:
                text = f"{message['to']} answers with more than {MAX_WHOLE} bytes."
                answered.set_exception(SyncError(413, text))
                return
            children = value.get("childrenObjects")
            if isinstance(children, dict):
                whole.setdefault("childrenObjects", {}).update(children)
            left -= 1
        elif isinstance(value.get("responses"), int) and value["responses"] > 1:
            whole.update(value)
            left = value["responses"] - 1
        elif is_final(code):
            answered.set_result(value)
            return
        else:
            return
        if left == 0:
            answered.set_result(whole)
        elif is_final(code):
            text = f"{message['to']} has left out {left} parts of its answer."
            answered.set_exception(SyncError(502, text))

    id_ = bus.post_message(message, take)
    try:
        return await answered
    finally:
        bus.remove_response_listener(message["from"], id_)

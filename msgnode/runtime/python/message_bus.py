"""The MessageBUS: message delivery of a runtime, between its sandboxes and to other domains.

What becomes of one copy of a message; the first line that holds decides:

    an answer somebody waits for     to him
    exactly `to` has listeners       to all of them; if `to` is published here and the copy did not
                                     come in from outside, outside as well
    `to` is below this runtime       404 to a request
    it came in through a stub        404 to a request: a runtime is never a relay between two stubs
    any other                        `outside` finds the protostub that reaches `to`, or loads it

What goes out through another stub than the home domain's is remembered: only that stub may bring
an answer to it (`is_expected`). What crosses the border of the runtime passes a pipeline
(`pipeline_out`, `pipeline_in`); while a handler is awaited, the messages of the same sender to the
same address wait behind it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgnode.core import addresses

from .answers import ANSWER_SECONDS, OnAnswer
from .bus import Bus
from .listeners import Listening
from .messages import Message, body_of, code_of, copy_of, is_answerable, is_final
from .pipeline import Pipeline, Refused, is_exempt

MAX_SIZE = 1024 * 1024  # characters of one message
MAX_LANE = 1_000  # messages of one sender to one address that wait for a handler
_OWN = "own"  # marks what the runtime itself says to somebody in it: it never leaves it
RETURN_PATHS = 10_000  # requests from outside whose way back is remembered
MAX_ASKED = 50_000  # requests that other stubs than home's may answer

Then = Callable[[Message], None]
decisions = logging.getLogger("hyperty_runtime.decisions")
"""A line for each decision about a message, at the level DEBUG."""


class Outside(Protocol):
    """The way to other runtimes."""

    def send(self, message: Message, size: int, stub: str) -> str:
        """Take a message out.

        Args:
            message: the message.
            size: of it in characters, about.
            stub: URL of the stub that it must go through; "" for any.

        Returns:
            The URL of the stub it went or will go through, "" if it was refused (and answered).
        """
        ...


class Publishing:
    """An address whose messages go outside too, until remove()."""

    def __init__(self, published: Counter[str], address: str) -> None:
        self._published = published
        self._address = address
        self._is_removed = False
        published[address] += 1

    def remove(self) -> None:
        """Publish no more, unless others publish the same address."""
        if not self._is_removed:
            self._is_removed = True
            self._published[self._address] -= 1
            if not self._published[self._address]:
                del self._published[self._address]


class MessageBus(Bus):
    """The bus of one runtime."""

    def __init__(
        self,
        runtime_url: str,
        outside: Outside | None = None,
        max_size: int = MAX_SIZE,
    ) -> None:
        super().__init__(max_size)
        self.runtime_url = runtime_url
        self.outside = outside
        self.pipeline_in = Pipeline("in")
        self.pipeline_out = Pipeline("out")
        self.registered_with: dict[str, str] = {}  # what registrations say besides
        self.unregistered: set[str] = set()  # hyperties that are in no registry
        self.home_stub = ""  # the URL of the stub of the home domain
        self.endings: set[Callable[[], None]] = set()  # called when the bus closes
        self._own = (runtime_url, addresses.runtime_twin(runtime_url) or runtime_url)
        self._published: Counter[str] = Counter()
        self._lanes: dict[tuple[str, str], deque[tuple[Pipeline, Message, Then, str]]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._return_paths: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str], str] = OrderedDict()  # the stub they went through

    # --- what management code does ----------------------------------------------------------------

    def add_publish(self, address: str) -> Publishing:
        """Send what is posted to this local address outside as well (`…/changes` of an object)."""
        return Publishing(self._published, address)

    def is_published(self, address: str) -> bool:
        """Whether what is posted to this local address goes outside as well."""
        return address in self._published

    def add_forward(self, address: str, to: str) -> Listening:
        """Deliver what goes to `address` unchanged to the listeners of `to` as well."""
        return self.add_listener(
            address, lambda message: self._give(self._found(to) or [], message)
        )

    def receive(self, message: Message, stub_url: str) -> None:
        """Take in a message that a stub brought from outside. It carries the stub as `via`."""
        body = message.get("body")
        body = {"value": body} if isinstance(body, str) else body or {}
        self._post({**message, "body": {**body, "via": stub_url}}, stub_url)

    def tell(self, message: Message) -> None:
        """Deliver a message of the runtime itself to who listens to it here; nobody need do so."""
        self._post(message, _OWN)

    def listened(self, scheme: str) -> list[str]:
        """The addresses of a scheme that have listeners."""
        return [each for each in self._listeners if addresses.parse(each).scheme == scheme]

    def is_local(self, address: str) -> bool:
        """Whether an address belongs to this runtime alone.

        It is below its URL, or listened to here and not published, itself or the object it is a
        part of. What is published others answer, too: that nobody listens, for example.
        """
        if any(addresses.is_under(address, own) for own in self._own):
            return True
        return address not in self._published and any(
            each in self._listeners and each not in self._published
            for each in (address, addresses.resource_of(address))
        )

    async def close(self) -> None:
        """End the handlers that are awaited, what the endings end, and all waits with 503."""
        while self.endings:
            self.endings.pop()()
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await asyncio.sleep(0)  # who was answered last is told so
        self._answers.end_all(503, "The bus was closed.")

    # --- the decision -----------------------------------------------------------------------------

    def _route(self, message: Message, via: str, size: int) -> None:
        is_own = via == _OWN
        if message["type"] == "response" and self._take_answer(message, "" if is_own else via):
            _trace(message, "in" if via and not is_own else "own", via, "the awaited answer")
            return
        to = message["to"]
        found = self._found(to)
        if found:
            direction = "in" if via and not is_own else "own"
            _trace(message, direction, "" if is_own else via, f"{len(found)} listening")
        if is_own:
            if found:
                self._give(found, message)
            elif message["type"] == "response":
                self.unclaimed(message)
        elif via:
            self._from_outside(message, via, found)
        elif found:
            if self._published and to in self._published:
                wait = self._answers.to(message) if message["type"] != "response" else None
                if wait is not None:
                    wait.is_published = True
                self._to_outside(copy_of(message)[0], size)
            self._give(found, message)
        elif any(addresses.is_under(to, own) for own in self._own):
            self.undeliverable(message, 404, f"Nobody listens to {to} in this runtime.")
        else:
            self._to_outside(message, size)

    def _take_answer(self, answer: Message, via: str) -> bool:
        """Give an answer to who waits for it; whether somebody did.

        Many runtimes answer through the node of the asker's domain: what the home stub brings is
        an answer, too, if it is from whom was asked.
        """
        if via and via == self.home_stub:
            wait = self._answers.waits.get((answer["to"], str(answer.get("id"))))
            if wait is not None and answer["from"] == wait.request["to"]:
                via = wait.stub
        return self._answers.take(answer, via)

    def _from_outside(self, message: Message, via: str, found: list[Listening] | None) -> None:
        if is_answerable(message):
            key = (message["from"], str(message["id"]))
            self._return_paths[key] = via
            self._return_paths.move_to_end(key)
            if len(self._return_paths) > RETURN_PATHS:
                self._return_paths.popitem(last=False)
        if not found:
            self.undeliverable(message, 404, f"Nobody listens to {message['to']} in this runtime.")
        elif self.pipeline_in and not is_exempt(message):
            self._pass(self.pipeline_in, message, self._deliver_here, via)
        else:
            self._give(found, message)

    def _deliver_here(self, message: Message) -> None:
        found = self._found(message["to"])
        if found:
            self._give(found, message)
        else:
            self.undeliverable(message, 404, f"Nobody listens to {message['to']} in this runtime.")

    def _to_outside(self, message: Message, size: int) -> None:
        if self.pipeline_out and not is_exempt(message):
            self._pass(self.pipeline_out, message, lambda passed: self._send(passed, size))
        elif self._lanes and (message["from"], message["to"]) in self._lanes:
            self._pass(_NO_HANDLERS, message, lambda passed: self._send(passed, size))
        else:
            self._send(message, size)

    def _send(self, message: Message, size: int) -> None:
        to = message["to"]
        if self.outside is None:
            self.undeliverable(message, 404, f"There is no way from this runtime to {to}.")
            return
        stub = ""
        if message["type"] == "response":
            key = (to, str(message["id"]))
            stub = self._return_paths.get(key, "")
            if stub and is_final(code_of(message)):  # another follows a provisional one
                del self._return_paths[key]
        stub = self.outside.send(message, size, stub)
        if stub:  # else it was refused
            _trace(message, "out", stub, f"through {stub}")
        self.goes_through(message, stub)

    def undeliverable(self, message: Message, code: int, text: str) -> None:
        """As of any bus."""
        _trace(message, "--", "none", f"{code} {text}")
        super().undeliverable(message, code, text)

    def post_message(
        self, message: Message, on_answer: OnAnswer | None = None, seconds: float = ANSWER_SECONDS
    ) -> Any:
        """As of any bus. What is posted comes from inside: a `via` that it claims is taken away."""
        body = body_of(message)
        if "via" in body:
            body = {key: value for key, value in body.items() if key != "via"}
            message = {**message, "body": body}
        return super().post_message(message, on_answer, seconds)

    def _answer(self, answer: Message) -> None:
        is_to_outside = (answer["to"], str(answer["id"])) in self._return_paths
        self._enqueue(answer, "" if is_to_outside else _OWN, 0)

    def is_awaited(self, request: Message) -> bool:
        """Whether somebody here waits for the answer to a request."""
        return self._answers.to(request) is not None

    def goes_through(self, message: Message, stub: str) -> None:
        """A message goes out through this stub, after all if it had gone another way or waited."""
        if not is_answerable(message):
            return
        key = (message["from"], str(message["id"]))
        if self._answers.waits and (wait := self._answers.waits.get(key)) is not None:
            wait.stub = stub
        if stub != self.home_stub:
            self._asked[key] = stub
            if len(self._asked) > MAX_ASKED:
                self._asked.popitem(last=False)

    def is_expected(self, answer: Message, stub: str) -> bool:
        """Whether this stub, which is not the home domain's, was handed what this answers."""
        key = (answer["to"], str(answer.get("id")))
        wait = self._answers.waits.get(key)
        return self._asked.get(key) == stub or (wait is not None and wait.stub == stub)

    def refuse(self, message: Message, code: int, text: str) -> None:
        """Answer a message that `outside` cannot deliver; one that has no answer is counted."""
        wait = self._answers.to(message)
        if wait is not None and message["type"] != "response":
            wait.stub = ""  # it is the runtime that answers
        self.undeliverable(message, code, text)

    # --- pipelines --------------------------------------------------------------------------------

    def _pass(self, pipeline: Pipeline, message: Message, then: Then, via: str = "") -> None:
        """Run a pipeline and go on; behind a message that is awaited, wait for one's turn."""
        key = (message["from"], message["to"])
        lane = self._lanes.get(key)
        if lane is not None:
            if len(lane) >= MAX_LANE:
                text = f"More than {MAX_LANE} messages to {message['to']} wait for a check."
                self.undeliverable(message, 503, text)
                return
            lane.append((pipeline, message, then, via))
            return
        try:
            passed = pipeline.run(message, via)
        except Refused as refused:
            self._refused(message, refused)
            return
        if inspect.isawaitable(passed):
            self._lanes[key] = deque()
            task = asyncio.create_task(self._work(key, message, passed, then))
            self._working.add(task)
            task.add_done_callback(self._working.discard)
        else:
            then(passed)

    async def _work(
        self, key: tuple[str, str], message: Message, passing: Awaitable[Message], then: Then
    ) -> None:
        """Finish what is awaited, then what has come behind it."""
        lane = self._lanes[key]
        passed: Message | Awaitable[Message] = passing
        via = ""
        pipeline: Pipeline | None = None
        try:
            while True:
                try:
                    if pipeline is not None:
                        passed = pipeline.run(message, via)
                    if inspect.isawaitable(passed):
                        passed = await passed
                    then(passed)
                except Refused as refused:
                    self._refused(message, refused)
                except Exception as error:
                    self.report("bus.failed", f"The bus failed: {error!r}", message, error)
                if not lane:
                    return
                pipeline, message, then, via = lane.popleft()
        finally:
            del self._lanes[key]

    def _refused(self, message: Message, refused: Refused) -> None:
        self.counters["blocked"] += 1
        if refused.__cause__ is not None:
            text = f"A handler of a pipeline raised: {refused.__cause__!r}"
            self.report("handler.failed", text, message, refused.__cause__)
        self.refuse(message, refused.code, str(refused))


_NO_HANDLERS = Pipeline("out")


def _trace(message: Message, direction: str, stub: str, decision: str) -> None:
    """A line for who debugs: direction, way, message, decision; the log adds the time."""
    if not decisions.isEnabledFor(logging.DEBUG):
        return
    way = "channel" if "/p2prequester/" in stub or "/p2phandler/" in stub else "node"
    code = f" {code_of(message)}" if message["type"] == "response" else ""
    head = f"{direction} {stub if stub == 'none' else way if stub else 'here'}"
    what = f"{message['type']}{code} {message.get('id')}"
    decisions.debug("%s %s %s -> %s: %s", head, what, message["from"], message["to"], decision)

"""Queries and calls between workers, never on the message path.

A query goes to all others (figures, watched messages: for a page or a scrape), a call to the worker
that has what a request is about.

Rules
- There is one query of a kind at a time; concurrent callers share its answers.
- Every wait has a limit: a worker that has not answered by then is left out, with None. A call ends
  without an answer when the other worker is down. Both are sent once the link has room.
- At most MOST queries and MOST_CALLS calls are processed at once; beyond that the answer is empty
  at once, as after a fault. An answer has at most MAX_BYTES, a call MAX_CALL_BYTES each way,
  because links are meant for messages.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout

import msgspec

from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity

from .linked_worker import LinkedWorker
from .protocol import RpcRequest, RpcResponse
from .transport import LinkTransport

log = logging.getLogger(__name__)

MOST = 8
_TURN = 5.0  # seconds until an event loop that is busy is given up
MAX_BYTES = 256 * 1024
MOST_CALLS = 10_000
MAX_CALL_BYTES = 4 * 1024 * 1024
IDENTITY_SECONDS = 1.0
_IDENTITY = "identity"

Answers = dict[str, bytes | None]
"""By the name of the worker; None if it did not answer in time."""


Answer = Callable[[bytes], Awaitable[bytes]]


class WorkerRpc:
    """One instance per worker. Questions and calls are answered on the event loop."""

    def __init__(self, transport: LinkTransport) -> None:
        self._questions: dict[str, Answer] = {}
        self._calls: dict[str, Answer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport = transport
        self._numbers = itertools.count(1)
        self._asked: dict[tuple[str, bytes], asyncio.Task[Answers]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._called: set[asyncio.Task[None]] = set()
        transport.handlers[RpcRequest] = self._asked_by
        transport.handlers[RpcResponse] = self._answered_by

    def begin(self) -> None:
        """Accept queries of other threads from now on. On the event loop."""
        self._loop = asyncio.get_running_loop()

    def answer_questions(self, answers: Mapping[str, Answer]) -> None:
        """Set the handlers of queries, by kind."""
        self._questions.update(answers)

    def answer_calls(self, kind: str, answer: Answer) -> None:
        """Set the handler of calls of a kind."""
        self._calls[kind] = answer

    async def ask(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """Query the other workers; return what they answer within so many seconds."""
        task = self._asked.get((kind, text))
        if task is None:
            task = asyncio.create_task(self._ask(kind, text, seconds))
            self._asked[kind, text] = task
            task.add_done_callback(lambda _: self._asked.pop((kind, text)))
        return await asyncio.shield(task)

    async def call(
        self, other: LinkedWorker, kind: str, text: bytes, seconds: float
    ) -> bytes | None:
        """Call one worker; None if it does not answer within so many seconds."""
        if len(text) > MAX_CALL_BYTES:
            return None
        number = next(self._numbers)
        try:
            async with asyncio.timeout(seconds):
                await other.room()
                if not other.is_up:
                    return None
                answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
                other.calls[number] = answer
                other.out.put(RpcRequest(number, kind, text), len(text))
                return await answer
        except TimeoutError:
            return None
        finally:
            other.calls.pop(number, None)

    def ask_from_thread(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """As `ask`, for a thread: blocks."""
        if self._loop is None or self._loop.is_closed():
            return {}
        rpc = asyncio.run_coroutine_threadsafe(self.ask(kind, text, seconds), self._loop)
        try:
            return rpc.result(seconds + _TURN)
        except FutureTimeout:
            rpc.cancel()
            return {}

    def _answered_by(self, other: LinkedWorker, message: RpcResponse) -> None:
        waiting = other.calls.pop(message.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message.text)

    def _asked_by(self, other: LinkedWorker, message: RpcRequest) -> None:
        is_call = message.kind in self._calls
        answer = (self._calls if is_call else self._questions).get(message.kind)
        under_way, most = (self._called, MOST_CALLS) if is_call else (self._answering, MOST)
        if answer is None or len(under_way) >= most:
            other.out.put(RpcResponse(message.number, b""))
            return
        longest = MAX_CALL_BYTES if is_call else MAX_BYTES
        task = asyncio.create_task(self._answer(other, message, answer, longest))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    async def _ask(self, kind: str, text: bytes, seconds: float) -> Answers:
        others = list(self._transport.others.values())
        answers = await asyncio.gather(*(self.call(each, kind, text, seconds) for each in others))
        return {other.name: answer or None for other, answer in zip(others, answers, strict=True)}

    async def _answer(
        self, other: LinkedWorker, asked: RpcRequest, answer: Answer, longest: int
    ) -> None:
        text = b""
        with FAULTS.kept_to("worker link"):
            text = await answer(asked.text)
        if len(text) > longest:
            log.warning("An answer to another worker is too long.", extra={"kind": asked.kind})
            text = b""
        await other.room()
        if other.is_up:
            other.out.put(RpcResponse(asked.number, text), len(text))


class IdentityLookup:
    """Asks the other workers for an identity that is not known by a name here; one per worker.

    Their announcements of sessions may still be on the way when the answer that opened one has
    arrived.
    """

    def __init__(self, transport: LinkTransport, rpc: WorkerRpc) -> None:
        self._transport = transport
        self._rpc = rpc

    async def find(self, name: str) -> Identity | None:
        """The subject with this name, if it is logged in at another worker.

        Raises:
            Unavailable: a worker does not answer, and the others know nobody.
        """
        others = list(self._transport.others.values())
        answers = await asyncio.gather(
            *(self._rpc.call(other, _IDENTITY, name.encode(), IDENTITY_SECONDS) for other in others)
        )
        found = [msgspec.msgpack.decode(each, type=Identity | None) for each in answers if each]
        identity = next((each for each in found if each is not None), None)
        if identity is None and len(found) < len(others):
            raise Unavailable("The node cannot check at the moment whether that name is known.")
        return identity


def answer_lookups(rpc: WorkerRpc, here: Callable[[str], Identity | None]) -> None:
    """Answer queries from now on; `here` finds an identity known to this worker."""

    async def answer(name: bytes) -> bytes:
        return msgspec.msgpack.encode(here(name.decode()))

    rpc.answer_calls(_IDENTITY, answer)

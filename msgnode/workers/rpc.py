"""Questions from one worker to all others: what they know only of themselves (figures, messages
that pass), for a page or a scrape; and calls to one of them, which has what a request is about.
Never on the path of a message.

Rules
- A question of a kind is asked once at a time; who asks it meanwhile gets the same answers.
- Every wait has an end: who has not answered by then is left out, with None.
- At most MOST answers are worked on at once; what is asked beyond is not answered. An answer longer
  than MAX_BYTES is not sent: a link is for messages.
- A call has bounds of its own: MOST_CALLS under way, MAX_CALL_BYTES each way. It is sent once the
  link has room. It ends without an answer when the other worker is down.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

from msgnode.core.faults import FAULTS

from .peer import Peer
from .protocol import RpcRequest, RpcResponse
from .transport import PeerTransport

log = logging.getLogger(__name__)

MOST = 8
_TURN = 5.0  # seconds until an event loop that is busy is given up
MAX_BYTES = 256 * 1024
MOST_CALLS = 10_000
MAX_CALL_BYTES = 4 * 1024 * 1024

Answers = dict[str, bytes | None]
"""By the name of the worker; None if it did not answer in time."""


@dataclass(slots=True)
class _PendingCall:
    """A question whose answers are waited for, by epoch."""

    waited_for: set[str]
    answers: dict[str, bytes] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class PeerRpc:
    """One instance per worker.

    `answers` by the kind of question, `calls` by the kind of call; both are given on the event
    loop."""

    def __init__(self, transport: PeerTransport) -> None:
        self.answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.calls: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._transport = transport
        self._numbers = itertools.count(1)
        self._asked: dict[int, _PendingCall] = {}
        self._rpc: dict[tuple[str, bytes], asyncio.Task[Answers]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._called: set[asyncio.Task[None]] = set()

    async def ask(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """What the other workers answer within so many seconds."""
        task = self._rpc.get((kind, text))
        if task is None:
            task = asyncio.create_task(self._ask(kind, text, seconds))
            self._rpc[kind, text] = task
            task.add_done_callback(lambda _: self._rpc.pop((kind, text)))
        return await asyncio.shield(task)

    async def call(self, peer: Peer, kind: str, text: bytes, seconds: float) -> bytes | None:
        """What one worker answers within so many seconds; None if it does not."""
        if len(text) > MAX_CALL_BYTES:
            return None
        number = next(self._numbers)
        try:
            async with asyncio.timeout(seconds):
                await peer.room()
                if not peer.is_up:
                    return None
                answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
                peer.calls[number] = answer
                peer.out.put(RpcRequest(number, kind, text), len(text))
                return await answer
        except TimeoutError:
            return None
        finally:
            peer.calls.pop(number, None)

    def ask_from_thread(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """The same, for a thread: blocks."""
        if self.loop is None or self.loop.is_closed():
            return {}
        rpc = asyncio.run_coroutine_threadsafe(self.ask(kind, text, seconds), self.loop)
        try:
            return rpc.result(seconds + _TURN)
        except FutureTimeout:
            rpc.cancel()
            return {}

    def heard(self, peer: Peer, message: RpcRequest | RpcResponse) -> None:
        """Another worker asks, or answers."""
        if isinstance(message, RpcResponse) and message.number in peer.calls:
            answer = peer.calls.pop(message.number)
            if not answer.done():
                answer.set_result(message.text)
        elif isinstance(message, RpcResponse):
            asked = self._asked.get(message.number)
            if asked is not None and peer.epoch in asked.waited_for:
                asked.answers[peer.epoch] = message.text
                if len(asked.answers) == len(asked.waited_for):
                    asked.done.set()
        elif message.kind in self.calls:
            self._take_call(peer, message)
        elif message.kind in self.answers and len(self._answering) < MOST:
            task = asyncio.create_task(self._answer(peer, message))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _ask(self, kind: str, text: bytes, seconds: float) -> Answers:
        peers = list(self._transport.peers.values())
        up = [peer for peer in peers if peer.is_up]
        asked = _PendingCall({peer.epoch for peer in up})
        if up:
            number = next(self._numbers)
            self._asked[number] = asked
            for peer in up:
                peer.out.put(RpcRequest(number, kind, text), len(text))
            try:
                async with asyncio.timeout(seconds):
                    await asked.done.wait()
            except TimeoutError:
                late = [peer.name for peer in up if peer.epoch not in asked.answers]
                log.info("Workers did not answer in time: %s", ", ".join(late))
            finally:
                del self._asked[number]
        return {peer.name: asked.answers.get(peer.epoch) for peer in peers}

    def _take_call(self, peer: Peer, message: RpcRequest) -> None:
        if len(self._called) >= MOST_CALLS:
            peer.out.put(RpcResponse(message.number, b""))
            return
        task = asyncio.create_task(self._answer_call(peer, message))
        self._called.add(task)
        task.add_done_callback(self._called.discard)

    async def _answer_call(self, peer: Peer, message: RpcRequest) -> None:
        text = b""
        with FAULTS.kept_to("worker link"):
            text = await self.calls[message.kind](message.text)
        await peer.room()
        if peer.is_up:
            peer.out.put(RpcResponse(message.number, text), len(text))

    async def _answer(self, peer: Peer, message: RpcRequest) -> None:
        try:
            text = await self.answers[message.kind](message.text)
        except Exception:
            log.exception("A question of another worker could not be answered.")
            return
        if len(text) > MAX_BYTES:
            log.warning("An answer to another worker is too long.", extra={"kind": message.kind})
        elif peer.is_up:
            peer.out.put(RpcResponse(message.number, text), len(text))

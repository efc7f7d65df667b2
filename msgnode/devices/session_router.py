"""Routes a device's request to the worker that has its session.

A stream of events of such a session is asked for the next ones. Each request names the stream's
position, so a lost answer is repeated, and if the session moves to another worker meanwhile the
stream continues from there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgnode.bus.ports import Listener
from msgnode.core.errors import NodeError, NotIdentified, Unavailable
from msgnode.sessions.frame_connection import Closed
from msgnode.sessions.rules import CloseCode

from . import downstream, forwarding, token
from .devices import Device
from .downstream import COMMENT_SECONDS, Downstream
from .events import EventId, read_id
from .forwarding import Answer, Chunk, Collected, OtherWorkers, Read, Refusal, Request
from .http import Exchange, Receive, Send
from .resumption import DeviceSessions
from .token import SessionKey


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader: a device by its token, from an address. `read` asks the session's worker."""

    token: str
    source: str
    is_elsewhere: bool
    read: Callable[[Read], Awaitable[Chunk]]


async def stream(exchange: Exchange, after: EventId | None, reader: Reader) -> None:
    """Answer with the device's events until the client or the session goes.

    Raises:
        NodeError: before anything was answered.
    """
    name = uuid.uuid4().hex
    first = Read(reader.token, reader.source, name, True, str(after or ""), 0.0)
    chunk = await reader.read(first)
    async with downstream.answering(exchange) as client:
        while not client.is_gone:
            await client.write(chunk.text)
            if chunk.is_over:
                return
            asked = Read(reader.token, reader.source, name, False, chunk.position, COMMENT_SECONDS)
            question = asyncio.ensure_future(reader.read(asked))
            try:
                await client.wait_for(question)
                if not question.done():
                    return
                chunk = question.result()
            except NotIdentified as error:
                chunk = _end(CloseCode.NORMAL, error)
            except NodeError as error:
                chunk = _end(CloseCode.GOING_AWAY, error)
            finally:
                question.cancel()


async def read_here(device: Device, asked: Read) -> Chunk:
    """The next part of the stream of a device of this worker."""
    buffer = device.buffer
    with Downstream(device, asked.reader, asked.begins) as reading:
        if asked.begins:
            buffer.resume(read_id(asked.after))
            return Chunk(b"", str(buffer.last_sent))
        if reading.closed is None:
            buffer.resume(read_id(asked.after), confirms=False)
        if not reading.has_news:
            await reading.wait(asked.wait)
        text = downstream.chunk_of(reading, device)
        return Chunk(text, str(buffer.last_sent), reading.is_over)


def _end(code: int, error: NodeError) -> Chunk:
    return Chunk(downstream.closing(Closed(code, error.description)), "", is_over=True)


MOVES = 5
"""How often a session may move to another worker while a request follows it."""
_PAUSE = 0.05
Handle = Callable[[Exchange, Device], Awaitable[None]]


class SessionRouter:
    """One instance per worker. `application` answers whole requests, `workers` are the others."""

    def __init__(
        self,
        sessions: DeviceSessions,
        workers: OtherWorkers,
        max_body: int,
        application: Callable[[dict[str, object], Receive, Send], Awaitable[None]],
    ) -> None:
        self._sessions = sessions
        self._workers = workers
        self._max_body = max_body
        self._application = application

    async def device(self, exchange: Exchange) -> Device:
        """The device of a request, resumed at this worker. Raises NodeError."""
        return await self._device(key_of(exchange), exchange.source)

    async def route(self, exchange: Exchange, seconds: float, handle: Handle) -> None:
        """Have a request, which waits for `seconds` at most, handled where its session is.

        Raises:
            NodeError: it is refused.
        """
        key = key_of(exchange)
        request: Request | None = None
        for _ in range(MOVES):
            others = self._others_with(listener := await self._sessions.find(key))
            if others is None:
                if request is not None:  # its body has been read
                    exchange.receive = Collected(request).exchange.receive
                await handle(exchange, await self._device(key, exchange.source))
                return
            if request is None:
                request = await forwarding.request_of(exchange, self._max_body)
            told = await forwarding.ask(others, listener, request, seconds)
            if isinstance(told, Answer):
                await _pass_on(exchange, told)
                return
            await asyncio.sleep(_PAUSE)
        raise _on_its_way()

    async def reader(self, exchange: Exchange) -> Reader:
        """A stream of the events of the session. Raises NodeError."""
        key = key_of(exchange)

        async def read(asked: Read) -> Chunk:
            for _ in range(MOVES):
                others = self._others_with(listener := await self._sessions.find(key))
                if others is None:
                    return await read_here(await self._device(key, asked.source), asked)
                told = await forwarding.ask(others, listener, asked, asked.wait)
                if isinstance(told, Chunk):
                    return told
                await asyncio.sleep(_PAUSE)
            raise _on_its_way()

        is_elsewhere = self._others_with(await self._sessions.find(key)) is not None
        return Reader(exchange.bearer(), exchange.source, is_elsewhere, read)

    async def answer(self, text: bytes) -> bytes:
        """Answer a request forwarded by another worker, whose session is here."""
        return forwarding.write_answer(await self._answer(forwarding.read_question.decode(text)))

    async def _answer(self, asked: forwarding.Asked) -> forwarding.Told:
        try:
            if isinstance(asked, Read):
                key = _read_key(asked.token)
                if not (await self._sessions.find(key)).is_here:
                    return Refusal(503, "", is_elsewhere=True)
                return await read_here(await self._device(key, asked.source), asked)
            collected = Collected(asked)
            exchange = collected.exchange
            if not (await self._sessions.find(key_of(exchange))).is_here:
                return Refusal(503, "", is_elsewhere=True)
            await self._application(exchange.scope, exchange.receive, exchange.send)
            return collected.answer
        except NodeError as error:
            return Refusal(error.code, error.description)

    async def _device(self, key: SessionKey, source: str) -> Device:
        return await self._sessions.device(await self._sessions.find(key), key, source)

    def _others_with(self, listener: Listener) -> OtherWorkers | None:
        """The other workers, if one that is up has the session."""
        is_elsewhere = not listener.is_here and self._workers.hears(listener.id)
        return self._workers if is_elsewhere else None


def key_of(exchange: Exchange) -> SessionKey:
    """What opens the session of a request. Raises NotIdentified."""
    return _read_key(exchange.bearer())


def _read_key(text: str) -> SessionKey:
    key = token.read(text)
    if key is None:
        raise NotIdentified("The header Authorization must bring a device's session token.")
    return key


def _on_its_way() -> Unavailable:
    return Unavailable("The session is on its way from one worker of the node to another.")


async def _pass_on(exchange: Exchange, told: Answer) -> None:
    """Send the response of another worker, with the usual headers."""
    said = {name for name, _ in told.headers}
    headers = told.headers + [each for each in exchange.headers if each[0] not in said]
    await exchange.send({"type": "http.response.start", "status": told.status, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": told.body})

"""A stream of events of a session at another worker, which is asked for the next ones.

Each request names the stream's position, so a lost answer is repeated, and if the session moves to
another worker meanwhile the stream continues from there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgnode.core.errors import NodeError, NotIdentified
from msgnode.sessions.frame_connection import Closed
from msgnode.sessions.rules import CloseCode

from . import downstream
from .devices import Device
from .downstream import COMMENT_SECONDS, Downstream
from .events import EventId, read_id
from .forwarding import Chunk, Read
from .http import Exchange


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


async def read(device: Device, asked: Read) -> Chunk:
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

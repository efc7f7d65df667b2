"""The downstream to a device: a stream of server-sent events or long polls, one at a time.

A second one ends the first with 4409. The reason for the end of the session's connection is the
last event.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgnode.sessions.frame_connection import Closed
from msgnode.sessions.rules import CloseCode

from .devices import Device
from .events import EventId
from .http import Disconnected, Exchange, encode

COMMENT_SECONDS = 15.0
"""Seconds after which a comment is sent on a silent stream, as a sign of life."""
STALLED_SECONDS = 30.0
"""A client that has read nothing for so long is cut off."""
AT_MOST = 100
MAX_BYTES = 64 * 1024
_REPLACED = Closed(CloseCode.REPLACED, "the device reads elsewhere")
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
]


class Downstream:
    """The one downstream of a device, for the duration of the block.

    `reader` identifies it; unless it begins, it may continue only if it was the last reader.
    """

    def __init__(self, device: Device, reader: str = "", begins: bool = True) -> None:
        self.news = asyncio.Event()
        self._device = device
        self._reader = reader or uuid.uuid4().hex
        self._closed: Closed | None = None
        self._is_replaced = not begins and device.reader not in ("", self._reader)

    def __enter__(self) -> Downstream:
        device = self._device
        if self._is_replaced:
            self._stop()
            return self
        if device.stop_reading is not None:
            device.stop_reading()
        device.reader = self._reader
        device.stop_reading = self._stop
        device.link.on_news = self.news.set
        return self

    def __exit__(self, *_: object) -> None:
        device = self._device
        device.connection.active_at = time.monotonic()
        if device.stop_reading == self._stop:
            device.stop_reading = None
            device.link.on_news = _nothing

    @property
    def closed(self) -> Closed | None:
        """Why it is over, None while it is not."""
        return self._device.link.closed or self._closed

    @property
    def is_over(self) -> bool:
        """Whether no more events can come before its end."""
        return self._closed is not None or (
            self.closed is not None and not self._device.buffer.has_unsent
        )

    @property
    def has_news(self) -> bool:
        """Whether there is something to send now."""
        buffer = self._device.buffer
        return buffer.has_unsent or buffer.has_gap or self.closed is not None

    def take_gap(self) -> bool:
        """Whether something was lost before the next event; not once another reads."""
        return self._closed is None and self._device.buffer.take_gap()

    def take(self, at_most: int = AT_MOST) -> list[tuple[EventId, bytes]]:
        """The next events; nothing once another reads."""
        if self._closed is not None:
            return []
        events = self._device.buffer.take(at_most, MAX_BYTES)
        self._device.link.taken()
        return events

    def confirm(self, sent: EventId) -> None:
        """The device has all up to this event; nothing once another reads, who has gone on."""
        if self._closed is None:
            self._device.buffer.resume(sent)

    async def wait(self, seconds: float) -> None:
        """Wait for news, at most so long."""
        self.news.clear()
        if not self.has_news:
            try:
                async with asyncio.timeout(seconds):
                    await self.news.wait()
            except TimeoutError:
                return

    def _stop(self) -> None:
        self._closed = _REPLACED
        self.news.set()


class StreamClient:
    """The client of a streamed response."""

    def __init__(self, exchange: Exchange) -> None:
        extensions = exchange.scope.get("extensions") or {}
        self.gone = asyncio.ensure_future(exchange.gone())
        self._writable: Callable[[float], Awaitable[bool]] | None
        self._writable = extensions.get("msgnode.writable")
        self._send = exchange.send
        self._is_stalled = False

    @property
    def is_gone(self) -> bool:
        """Whether the client has gone, or has not read for too long."""
        return self._is_stalled or self.gone.done()

    async def write(self, text: bytes) -> None:
        """Send more, once the client has read enough of what was sent before.

        One that has not within STALLED_SECONDS is gone.
        """
        if not text or self.is_gone:
            return
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await self._send({"type": "http.response.body", "body": text, "more_body": True})
        except TimeoutError:
            self._is_stalled = True
            return
        if self._writable is not None and not await self._writable(STALLED_SECONDS):
            self._is_stalled = True

    async def wait_for(self, answer: asyncio.Future[Any]) -> None:
        """Wait for something, or until the client has gone."""
        await asyncio.wait([answer, self.gone], return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def answering(exchange: Exchange) -> AsyncIterator[StreamClient]:
    """Begin a stream of events, and end it."""
    client = StreamClient(exchange)
    try:
        headers = [*exchange.headers, *_STREAM_HEADERS]
        await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
        await client.write(b"retry: 1000\n\n")
        yield client
        if not client.is_gone:
            await exchange.send({"type": "http.response.body", "body": b""})
    finally:
        client.gone.cancel()


async def stream(exchange: Exchange, device: Device, after: EventId | None) -> None:
    """Stream the device's events until the client or the session goes."""
    with Downstream(device) as downstream:
        device.buffer.resume(after)
        async with answering(exchange) as client:
            client.gone.add_done_callback(lambda _: downstream.news.set())
            while not client.is_gone:
                await client.write(chunk_of(downstream, device))
                if downstream.is_over:
                    break
                if not downstream.has_news and not client.is_gone:
                    await downstream.wait(COMMENT_SECONDS)


async def poll(
    exchange: Exchange, device: Device, after: EventId | None, seconds: float, at_most: int
) -> None:
    """Answer with the present events, or those that come within so many seconds."""
    gone = asyncio.ensure_future(exchange.gone())
    until = time.monotonic() + seconds
    try:
        with Downstream(device) as downstream:
            gone.add_done_callback(lambda _: downstream.news.set())
            if after is None:
                device.buffer.rewind()
            device.buffer.resume(after)
            while not downstream.has_news and not gone.done() and time.monotonic() < until:
                await downstream.wait(until - time.monotonic())
            if gone.done():
                raise Disconnected
            gap = downstream.take_gap()
            events = downstream.take(at_most)
            closed = downstream.closed
            if not (events or gap or closed):
                await exchange.answer(204)
                return
            parts: dict[str, Any] = {
                "next": str(device.buffer.last_sent),
                "gap": gap,
            }
            if closed is not None:
                parts["close"] = {"code": closed.code, "reason": closed.reason}
            await exchange.answer(200, with_events(parts, events))
    finally:
        gone.cancel()


def with_events(parts: dict[str, Any], events: list[tuple[EventId, bytes]]) -> bytes:
    """A JSON object of these parts and the `messages`, whose frames are as they came."""
    listed = b",".join(frame for _, frame in events)
    return encode(parts)[:-1] + b',"messages":[' + listed + b"]}"


def chunk_of(downstream: Downstream, device: Device) -> bytes:
    """The events to send, or a comment if there are none."""
    parts: list[bytes] = []
    if downstream.take_gap():
        id_ = device.buffer.last_sent
        parts.append(b"id: %b\nevent: gap\ndata: {}\n\n" % str(id_).encode())
    for id_, frame in downstream.take():
        data = frame.replace(b"\r", b" ").replace(b"\n", b" ")  # between values, never within one
        parts.append(b"id: %b\nevent: message\ndata: %b\n\n" % (str(id_).encode(), data))
    closed = downstream.closed
    if closed is not None and downstream.is_over:
        parts.append(closing(closed))
    return b"".join(parts) or b":\n\n"


def closing(closed: Closed) -> bytes:
    """The last event of a stream."""
    said = encode({"code": closed.code, "reason": closed.reason})
    return b"event: close\ndata: %b\n\n" % said


def _nothing() -> None:
    return None

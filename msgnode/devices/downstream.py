"""How a device hears: a stream of server-sent events, or long polls; one of them at a time.

A second one ends the first with 4409. What ends the session's connection is the last thing said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgnode.sessions.rules import CloseCode

from .devices import Device
from .events import EventId
from .http import Disconnected, Exchange, encode
from .link import Closed

COMMENT_SECONDS = 15.0
"""A stream on which nothing comes says that it is there."""
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
    """The one downstream of a device, for as long as the block is entered."""

    def __init__(self, device: Device) -> None:
        self.news = asyncio.Event()
        self._device = device
        self._closed: Closed | None = None

    def __enter__(self) -> Downstream:
        device = self._device
        if device.stop_reading is not None:
            device.stop_reading()
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
        """Whether nothing more is to be said before its end."""
        return self._closed is not None or (
            self.closed is not None and not self._device.buffer.has_unsent
        )

    @property
    def has_news(self) -> bool:
        buffer = self._device.buffer
        return buffer.has_unsent or buffer.has_gap or self.closed is not None

    def take(self, at_most: int = AT_MOST) -> list[tuple[EventId, bytes]]:
        """The next events; nothing once another reads."""
        if self._closed is not None:
            return []
        events = self._device.buffer.take(at_most, MAX_BYTES)
        self._device.link.taken()
        return events

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


async def stream(exchange: Exchange, device: Device, after: EventId | None) -> None:
    """Answer with the device's events until the client or the session goes."""
    writable: Callable[[float], Awaitable[bool]] | None
    writable = (exchange.scope.get("extensions") or {}).get("msgnode.writable")
    gone = asyncio.ensure_future(exchange.gone())
    try:
        with Downstream(device) as downstream:
            gone.add_done_callback(lambda _: downstream.news.set())
            device.buffer.resume(after)
            headers = [*exchange.headers, *_STREAM_HEADERS]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
            await exchange.send(start)
            await _write(exchange, b"retry: 1000\n\n")
            while not gone.done():
                await _write(exchange, _chunk(downstream, device))
                if downstream.is_over:
                    break
                if writable is not None and not await writable(STALLED_SECONDS):
                    return  # the server has cut it off
                if not downstream.has_news:
                    await downstream.wait(COMMENT_SECONDS)
            if not gone.done():
                await exchange.send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def poll(
    exchange: Exchange, device: Device, after: EventId | None, seconds: float, at_most: int
) -> None:
    """Answer with what there is, or what comes within so many seconds."""
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
            gap = downstream.closed is None and device.buffer.take_gap()
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
            listed = b",".join(frame for _, frame in events)
            body = encode(parts)[:-1] + b',"messages":[' + listed + b"]}"
            await exchange.answer(200, body)
    finally:
        gone.cancel()


async def _write(exchange: Exchange, chunk: bytes) -> None:
    await exchange.send({"type": "http.response.body", "body": chunk, "more_body": True})


def _chunk(downstream: Downstream, device: Device) -> bytes:
    """What there is to say, or a comment if there is nothing."""
    parts: list[bytes] = []
    if downstream.closed is None and device.buffer.take_gap():
        parts.append(b"event: gap\ndata: {}\n\n")
    for id_, frame in downstream.take():
        data = frame.replace(b"\r", b" ").replace(b"\n", b" ")  # between values, never within one
        parts.append(b"id: %b\nevent: message\ndata: %b\n\n" % (str(id_).encode(), data))
    closed = downstream.closed
    if closed is not None and downstream.is_over:
        said = encode({"code": closed.code, "reason": closed.reason})
        parts.append(b"event: close\ndata: %b\n\n" % said)
    return b"".join(parts) or b":\n\n"


def _nothing() -> None:
    return None

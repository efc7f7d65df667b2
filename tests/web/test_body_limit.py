"""Bodies of requests are bounded: a unit by unit, and on real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from msgnode.web.body_limit import BodyLimit
from tests.node import Node

LIMIT = 10


class Exchanged:
    """One request of these parts, and what was answered."""

    def __init__(self, *parts: bytes, length: str = "") -> None:
        headers = [(b"content-length", length.encode())] if length else []
        self.scope = {"type": "http", "headers": headers}
        self.read: list[bytes] = []
        self.has_gone = False
        self.sent: list[dict[str, Any]] = []
        self._parts = list(parts)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                self.has_gone = True
                return
            self.read.append(event["body"])
            if not event["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive(self) -> dict[str, Any]:
        body = self._parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self._parts)}

    async def send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    async def run(self) -> int:
        await BodyLimit(self.application, LIMIT)(self.scope, self.receive, self.send)
        statuses: list[int] = [each["status"] for each in self.sent if "status" in each]
        (status,) = statuses
        return status


async def test_a_body_at_the_limit_passes_and_one_byte_more_is_413() -> None:
    assert await Exchanged(b"x" * LIMIT).run() == 200
    assert await Exchanged(b"x" * 5, b"x" * 5).run() == 200
    longer = Exchanged(b"x" * 5, b"x" * 6, b"x")
    assert await longer.run() == 413
    assert longer.has_gone
    assert longer.read == [b"x" * 5]


async def test_a_length_that_is_said_is_refused_unread() -> None:
    said = Exchanged(b"", length=str(LIMIT + 1))
    assert await said.run() == 413
    assert not said.read
    assert await Exchanged(b"x" * LIMIT, length=str(LIMIT)).run() == 200


async def test_a_body_that_never_ends_is_cut_off(start_node: Callable[..., Node]) -> None:
    node = start_node(DEVICE_HTTP=True, MAX_REQUEST_BYTES=100_000, MAX_FRAME_BYTES=50_000)
    for path in ("/api/v1/hyperties", "/device/v1/sessions", "/login/"):
        await cut_off(node, path)


async def cut_off(node: Node, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    answered = asyncio.create_task(reader.readline())
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 50_000_000 and not answered.done():
            writer.write(chunk)
            await writer.drain()
            sent += len(chunk)
            await asyncio.sleep(0)
    line = b""
    with contextlib.suppress(ConnectionError):  # a reset after it was refused
        line = await asyncio.wait_for(answered, 30)
    assert line == b"" or b" 413 " in line, line
    assert sent < 50_000_000
    writer.close()
    assert node.get("/health/ready") == 200

"""A network server of tests: takes what a webhook posts, checks it, and answers as it is told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.client import LIMIT, Frame

Posted = dict[str, Any]
REPLAY_SECONDS = 300


def is_signed(secret: str, headers: dict[str, str], body: bytes, now: float) -> bool:
    """What a receiver checks, as the Standard Webhooks have it."""
    if abs(now - int(headers["webhook-timestamp"])) > REPLAY_SECONDS:
        return False
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    wanted = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(headers["webhook-signature"], f"v1,{wanted}")


class Receiver:
    """`answer(posted)` gives the status and the body of each answer but those to challenges.

    It answers none of those while `may_answer` is not set.
    """

    def __init__(self) -> None:
        self.port = 0
        self.secret = ""
        self.connections = 0  # that are open
        self.posted: asyncio.Queue[Posted] = asyncio.Queue()
        self.raw: list[tuple[dict[str, str], bytes]] = []
        self.is_polite = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer: Callable[[Posted], tuple[int, bytes]] = lambda _: (204, b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def messages(self, number: int) -> list[Frame]:
        """So many messages, in the order they came."""
        found: list[Frame] = []
        async with asyncio.timeout(LIMIT):
            while len(found) < number:
                found += (await self.posted.get())["messages"]
        return found

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (each.partition(":") for each in lines[1:] if each)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        posted = json.loads(body)
        if posted.get("type") == "challenge":
            told = {"challenge": posted["challenge"] if self.is_polite else "no"}
            status, text = 200, json.dumps(told).encode()
        else:
            if self.secret:
                assert is_signed(self.secret, headers, body, time.time())
            self.raw.append((headers, body))
            await self.may_answer.wait()
            status, text = self.answer(posted)
            if 200 <= status < 300:
                self.posted.put_nowait(posted)
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
        await writer.drain()
        return True


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


@asynccontextmanager
async def answering(text: bytes, drip: float = 0.0) -> AsyncIterator[int]:
    """A server that answers this to whatever comes, perhaps a byte at a time; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for at in range(len(text) if drip else 1):
                writer.write(text[at : at + 1] if drip else text)
                await writer.drain()
                await asyncio.sleep(drip)
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()

"""Idle clients: devices with a stream of events, or runtimes with a socket; and how long a message
to one of them takes while all the others are there."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

from bench.wire import LoadSocket, message

from .runtimes import AT_ONCE, open_session, runtime_url

_SECONDS = 30.0


class _Stream(asyncio.Protocol):
    """One stream of events. `arrived` gets the time at which each message came."""

    def __init__(self, token: str) -> None:
        self.closed = False
        self.arrived: asyncio.Queue[float] = asyncio.Queue()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = (
            "GET /device/v1/events HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        ).encode()

    def connection_made(self, transport: Any) -> None:
        transport.write(self._head)

    def data_received(self, data: bytes) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        if b"event: message" in data:
            self.arrived.put_nowait(time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True


class DevicesLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._streams: list[_Stream] = []
        self._sockets: list[LoadSocket] = []
        self._talker: LoadSocket | None = None

    async def run(self, streams: int = 0, sockets: int = 0, messages: int = 0) -> dict[str, Any]:
        """Have so many clients of a kind, or send messages to some of them one by one."""
        turns = asyncio.Semaphore(min(64, AT_ONCE))
        if messages:
            return await self._deliver(messages)

        async def stream(number: int) -> _Stream:
            async with turns:
                return await self._stream(number)

        async def socket(number: int) -> LoadSocket:
            async with turns:
                return (await open_session(self._port, f"socket-{number}", ()))[0]

        missing = range(len(self._streams), streams)
        self._streams += await asyncio.gather(*(stream(number) for number in missing))
        missing = range(len(self._sockets), sockets)
        self._sockets += await asyncio.gather(*(socket(number) for number in missing))
        lost = [each for each in self._streams if each.closed]
        silent = [each for each in self._sockets if each.closed]
        clients = len(self._streams) + len(self._sockets)
        return {"clients": clients, "lost": len(lost) + len(silent)}

    async def _stream(self, number: int) -> _Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps({"runtimeURL": runtime_url(f"stream-{number}")}).encode()
        head = (
            "POST /device/v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = await asyncio.wait_for(reader.read(), _SECONDS)
        writer.close()
        told = json.loads(answer.partition(b"\r\n\r\n")[2])
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(
            lambda: _Stream(told["token"]), "127.0.0.1", self._port
        )
        await asyncio.wait_for(stream.begun, _SECONDS)
        return stream

    async def _deliver(self, messages: int) -> dict[str, Any]:
        if self._talker is None:
            self._talker, _ = await open_session(self._port, "talker", ())
        took: list[float] = []
        for number in range(messages):
            at = random.randrange(len(self._streams) or len(self._sockets))  # noqa: S311
            kind = "stream" if self._streams else "socket"
            text = message(
                id=number,
                type="create",
                from_=runtime_url("talker"),
                to=runtime_url(f"{kind}-{at}"),
                body={"value": number},
            )
            began = time.perf_counter()
            if self._streams:
                self._talker.transport.write(text)
                came = await asyncio.wait_for(self._streams[at].arrived.get(), _SECONDS)
            else:
                arrived: asyncio.Future[float] = asyncio.get_running_loop().create_future()
                self._sockets[at].on_frames = lambda _, done=arrived: _note(done)
                self._talker.transport.write(text)
                came = await asyncio.wait_for(arrived, _SECONDS)
            took.append((came - began) * 1000)
        took.sort()
        return {"p50_ms": took[len(took) // 2], "p99_ms": took[int(len(took) * 0.99)]}


def _note(arrived: asyncio.Future[float]) -> None:
    if not arrived.done():
        arrived.set_result(time.perf_counter())

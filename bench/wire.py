"""The client's half of RFC 6455, as small as a load generator needs it.

Frames to send are built and masked before the clock runs; of frames received only the header is
read, unless somebody asks for the text.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from typing import Any

import msgspec

_UPGRADE = (
    b"GET %b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TEXT, _CLOSE, _PING, _PONG = 0x81, 0x88, 0x89, 0x8A


def frame(payload: bytes, head: int = _TEXT) -> bytes:
    """One whole frame from client to server."""
    size = len(payload)
    if size < 126:
        header = struct.pack("!BB", head, 0x80 | size)
    elif size < 65536:
        header = struct.pack("!BBH", head, 0x80 | 126, size)
    else:
        header = struct.pack("!BBQ", head, 0x80 | 127, size)
    key = os.urandom(4)
    mask = (key * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return header + key + masked.to_bytes(size, "big")


def message(**fields: Any) -> bytes:
    """A message as a frame; `from_` becomes `from`."""
    return frame(message_text(**fields))


def message_text(**fields: Any) -> bytes:
    """A message as JSON; `from_` becomes `from`."""
    return msgspec.json.encode({key.rstrip("_"): value for key, value in fields.items()})


class LoadSocket(asyncio.Protocol):
    """One WebSocket. `on_frames(number)` is told how many text frames each read has brought;
    `on_text`, where it is set, gets each of them. `close_code` is what the server closed with."""

    __slots__ = (
        *("_answers", "_rest", "_upgraded", "close_code", "closed", "on_frames", "on_lost"),
        *("on_text", "path", "transport"),
    )

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.closed = False
        self.close_code = 0
        self.on_frames: Callable[[int], None] | None = None
        self.on_text: Callable[[bytes], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.transport: Any = None
        self._rest = b""
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers: list[asyncio.Future[dict[str, Any]]] = []

    @classmethod
    async def connect(cls, port: int, path: str = "/ws", source: str = "") -> LoadSocket:
        """A socket that is upgraded, from this address of the machine."""
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(
            lambda: cls(path.encode()),
            "127.0.0.1",
            port,
            local_addr=(source, 0) if source else None,
        )
        await asyncio.wait_for(socket._upgraded, 60)
        return socket

    async def ask(self, code: int = 200, /, **fields: Any) -> dict[str, Any]:
        """Send a request and wait for its answer; raises ValueError if its code is another."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self.transport.write(message(**fields))
        body: dict[str, Any] = (await asyncio.wait_for(answer, 60))["body"]
        if body.get("code") != code:
            raise ValueError(f"{fields} was answered {body}")
        return body

    def close(self) -> None:
        self.transport.close()

    # --- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(_UPGRADE % self.path)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        unanswered: list[asyncio.Future[Any]] = [self._upgraded, *self._answers]
        for waiting in unanswered:
            if not waiting.done():
                waiting.set_exception(ConnectionError("the server closed the socket"))
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at = 0
        if not self._upgraded.done():
            at = data.find(b"\r\n\r\n") + 4
            if at < 4:
                self._rest = data
                return
            if not data.startswith(b"HTTP/1.1 101"):
                self._upgraded.set_exception(ConnectionError(data[:100].decode("latin1")))
                return
            self._upgraded.set_result(None)
        end = len(data)
        texts = 0
        while end - at >= 2:
            size = data[at + 1]
            start = at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                start += width
                if start > end:
                    break
                size = int.from_bytes(data[at + 2 : start], "big")
            if start + size > end:
                break
            if data[at] != _TEXT:
                self._control(data[at], data[start : start + size])
            elif self._answers:
                answer = self._answers.pop(0)
                if not answer.done():  # who asked may have been cancelled
                    answer.set_result(msgspec.json.decode(data[start : start + size]))
            else:
                texts += 1
                if self.on_text is not None:
                    self.on_text(data[start : start + size])
            at = start + size
        self._rest = data[at:] if at < end else b""
        if texts and self.on_frames is not None:
            self.on_frames(texts)

    def _control(self, head: int, payload: bytes) -> None:
        if head == _PING:
            self.transport.write(frame(payload, _PONG))
        elif head == _CLOSE:
            self.closed = True
            self.close_code = int.from_bytes(payload[:2], "big")
            self.transport.write(frame(payload[:2], _CLOSE))
            self.transport.close()

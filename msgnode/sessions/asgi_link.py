"""A Link over plain ASGI, for servers that bring none of their own: a task awaits `send`.

ASGI knows no pings: whether anybody is behind such a socket cannot be told by the node, only by the
server's own pings. Nor does it know of a socket that is dropped: it is closed instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgnode.core.faults import FAULTS

_HIGH_WATER = 64 * 1024


class AsgiLink:
    """`is_paused` follows what `send` has not taken yet, so a server with back-pressure is felt."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self.is_paused = False
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self._send = send
        self._is_open = True
        self._waiting: deque[tuple[dict[str, Any], int]] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._task = asyncio.ensure_future(self._write())

    @property
    def unsent_bytes(self) -> int:
        """What the server has not taken yet."""
        return self._bytes

    def write(self, frame: bytes) -> None:
        """Queue a frame for the server; `on_pause` is called when too much waits."""
        if not self._is_open:
            return
        self._waiting.append(({"type": "websocket.send", "text": frame.decode()}, len(frame)))
        self._bytes += len(frame)
        self._wake.set()
        if self._bytes > _HIGH_WATER and not self.is_paused:
            self.is_paused = True
            self.on_pause()

    def close(self, code: int, reason: str) -> None:
        """Close the socket after what is queued."""
        self._closing()
        self._waiting.append(({"type": "websocket.close", "code": code, "reason": reason}, 0))
        self._wake.set()

    def ping(self, answered: Callable[[], None]) -> bool:
        """It cannot be told whether anybody is there."""
        return False

    def drop(self) -> None:
        """Forget what was not sent, and close."""
        self._forget()
        self.close(1001, "")

    def pause_reading(self) -> None:
        """Nothing to do: the consumer stops asking for frames."""

    def resume_reading(self) -> None:
        """Nothing to do: the consumer asks again."""

    async def finish(self) -> None:
        """The socket is gone: stop writing."""
        self._closing()
        self._forget()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    def _closing(self) -> None:
        """Nothing more can be written: what comes from now on waits for the next socket."""
        self._is_open = False
        self.is_paused = True

    def _forget(self) -> None:
        self._waiting.clear()
        self._bytes = 0

    async def _write(self) -> None:
        """Write until the socket is closed; the server says `disconnect` by itself."""
        try:
            await self._write_all()
        except OSError:  # ASGI's word for a client that has gone
            self._closing()
            self._forget()
        except Exception as error:
            FAULTS.note("link", error)
            self._closing()
            self._forget()

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                event, size = self._waiting.popleft()
                await self._send(event)
                self._bytes = max(0, self._bytes - size)
                if event["type"] == "websocket.close":
                    return
                if self.is_paused and self._is_open and self._bytes <= _HIGH_WATER // 2:
                    self.is_paused = False
                    self.on_resume()

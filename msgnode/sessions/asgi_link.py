"""A Link over plain ASGI, for servers without one of their own: a task awaits `send`.

ASGI has no pings, so only the server itself can detect a dead peer on such a socket. ASGI cannot
drop a socket either, so it is closed instead.
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
    """`is_paused` depends on the bytes that `send` has not accepted: the server's back-pressure."""

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
        """The bytes that the server has not accepted yet."""
        return self._bytes

    def write(self, frame: bytes) -> None:
        """Queue a frame for the server; `on_pause` is called when too much is queued."""
        if not self._is_open:
            return
        self._waiting.append(({"type": "websocket.send", "text": frame.decode()}, len(frame)))
        self._bytes += len(frame)
        self._wake.set()
        if self._bytes > _HIGH_WATER and not self.is_paused:
            self.is_paused = True
            self.on_pause()

    def close(self, code: int, reason: str) -> None:
        """Close the socket after the queued frames."""
        self._closing()
        self._waiting.append(({"type": "websocket.close", "code": code, "reason": reason}, 0))
        self._wake.set()

    def ping(self, answered: Callable[[], None]) -> bool:
        """Return False: ASGI has no pings."""
        return False

    def drop(self) -> None:
        """Discard what was not sent, and close."""
        self._forget()
        self.close(1001, "")

    def pause_reading(self) -> None:
        """Do nothing: the consumer stops asking for frames."""

    def resume_reading(self) -> None:
        """Do nothing: the consumer asks again."""

    async def finish(self) -> None:
        """Stop writing, because the socket is gone."""
        self._closing()
        self._forget()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    def _closing(self) -> None:
        """Accept no more frames; later ones wait in the outbox for the next socket."""
        self._is_open = False
        self.is_paused = True

    def _forget(self) -> None:
        self._waiting.clear()
        self._bytes = 0

    async def _write(self) -> None:
        """Write until the socket is closed; the server reports `disconnect` by itself."""
        try:
            await self._write_all()
        except OSError:  # ASGI raises it when the client has disconnected
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

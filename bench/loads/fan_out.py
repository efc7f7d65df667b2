"""Fan-out: one reporter updates an object, every observer of the object hears it.

At most `window` updates are under way; the next goes out when all observers together have heard as
much as one more update brings. Lost is what has not come 3 s after the last update.
"""

from __future__ import annotations

from typing import Any

from bench.wire import LoadSocket, message

from .clock import measure, until
from .runtimes import open_runtimes, text


class FanOutLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._reporters: dict[int, LoadSocket] = {}
        self._heard = 0
        self._sent = 0
        self._observers = 0
        self._window = 0
        self._is_running = False
        self._frame = b""
        self._write: Any = None

    async def open(self, sizes: list[int]) -> None:
        """One object for each number of observers; the same sessions observe several objects."""
        reporters = {f"reporter-{size}": [_object(size)] for size in sizes}
        sockets = await open_runtimes(self._port, reporters)
        self._reporters = dict(zip(sizes, sockets, strict=True))
        observers = {
            f"observer-{number}": [f"{_object(size)}/changes" for size in sizes if number < size]
            for number in range(max(sizes))
        }
        for socket in await open_runtimes(self._port, observers):
            socket.on_frames = self._received

    async def run(
        self, observers: int, window: int, size: int, seconds: float, sizes: list[int]
    ) -> dict[str, Any]:
        """One sample: deliveries a second, deliveries lost."""
        if not self._reporters:
            await self.open(sizes)
        self._heard = self._sent = 0
        self._observers = observers
        self._window = window
        self._frame = message(
            id=7,
            type="update",
            from_=_object(observers),
            to=f"{_object(observers)}/changes",
            body={"value": text(size)},
        )
        self._write = self._reporters[observers].transport.write
        self._is_running = True
        self._send()
        sample = await measure(lambda: self._heard, seconds, self._server_pid)
        self._is_running = False
        await until(lambda: self._heard >= self._sent * observers, 3.0)
        return {**sample, "updates": self._sent, "lost": self._sent * observers - self._heard}

    def _received(self, number: int) -> None:
        self._heard += number
        if self._is_running and self._heard >= (self._sent - self._window + 1) * self._observers:
            self._send()

    def _send(self) -> None:
        while self._heard >= (self._sent - self._window + 1) * self._observers:
            self._sent += 1
            self._write(self._frame)


def _object(observers: int) -> str:
    return f"comm://localhost/object-{observers}"

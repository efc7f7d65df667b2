"""Requests to a component: sessions ask, are answered after the commit, and ask the next.

With `window` 1 each request waits for the answer to the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

from .clock import measure, percentile, until
from .runtimes import open_runtimes

END_SECONDS = 15.0


class Asking:
    """A session that sends one request after another; `frames` makes them by their number."""

    def __init__(self, socket: LoadSocket, frames: Callable[[int], bytes]) -> None:
        self.count = 0
        self.asked = 0
        self.is_running = True
        self.times: list[float] = []
        self._began: list[float] = []
        self._write = socket.transport.write
        self._frames = frames
        socket.on_frames = self._answered

    def ask(self) -> None:
        self.asked += 1
        self._began.append(perf_counter())
        self._write(self._frames(self.asked))

    def _answered(self, number: int) -> None:
        now = perf_counter()
        self.count += number
        self.times += [now - began for began in self._began[:number]]
        del self._began[:number]
        if self.is_running:
            for _ in range(number):
                self.ask()


class RequestLoad:
    """A kind of request: what the first of a session is, and the frames of those that follow."""

    name = "asker"

    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._runs = itertools.count(1)

    def request(self, name: str, number: int) -> dict[str, Any]:
        """The fields of a request of the runtime `name`."""
        raise NotImplementedError

    def frames(self, name: str) -> Callable[[int], bytes]:
        """The frames of the runtime `name` by their number."""
        return lambda number: message(**self.request(name, number))

    async def run(self, sessions: int, window: int, seconds: float) -> dict[str, Any]:
        """One sample, by new sessions, because a session may hold a limited number."""
        run = next(self._runs)
        names: dict[str, list[str]] = {f"{self.name}-{run}-{n}": [] for n in range(sessions)}
        sockets = await open_runtimes(self._port, names)
        for name, socket in zip(names, sockets, strict=True):
            await socket.ask(**self.request(name, 0))  # a refusal would show here
        asking = [
            Asking(socket, self.frames(name)) for name, socket in zip(names, sockets, strict=True)
        ]
        for each in asking:
            for _ in range(window):
                each.ask()
        counted: Callable[[], int] = lambda: sum(each.count for each in asking)  # noqa: E731
        sample = await measure(counted, seconds, self._server_pid)
        for each in asking:
            each.is_running = False
        await until(lambda: all(each.count == each.asked for each in asking), END_SECONDS)
        times = sorted(time for each in asking for time in each.times)
        for socket in sockets:
            socket.close()
        return {
            **sample,
            "p50_us": percentile(times, 0.5) * 1e6,
            "p99_us": percentile(times, 0.99) * 1e6,
            "lost": sum(each.asked - each.count for each in asking),
        }

"""Allocations: sessions ask for an address and are answered after the commit.

With `window` 1 and one session each request waits for the answer to the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

from .clock import measure, percentile, until
from .runtimes import ALLOCATION, open_runtimes, runtime_url


class Client:
    """A session that asks for one address after another."""

    def __init__(self, name: str, socket: LoadSocket) -> None:
        self.count = 0
        self.asked = 0
        self.is_running = True
        self.times: list[float] = []
        self._began: list[float] = []
        self._write = socket.transport.write
        self._frame = message(
            id=1,
            type="create",
            from_=f"{runtime_url(name)}/registry",
            to=ALLOCATION,
            body={"scheme": "comm", "value": {"number": 1}},
        )
        socket.on_frames = self._answered

    def ask(self) -> None:
        self.asked += 1
        self._began.append(perf_counter())
        self._write(self._frame)

    def _answered(self, number: int) -> None:
        now = perf_counter()
        self.count += number
        self.times += [now - began for began in self._began[:number]]
        del self._began[:number]
        if self.is_running:
            for _ in range(number):
                self.ask()


class AllocationLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._runs = itertools.count(1)

    async def run(self, sessions: int, window: int, seconds: float) -> dict[str, Any]:
        """One sample, by new sessions, because a session may hold a limited number."""
        run = next(self._runs)
        names: dict[str, list[str]] = {
            f"allocator-{run}-{number}": [] for number in range(sessions)
        }
        sockets = await open_runtimes(self._port, names)
        for name, socket in zip(names, sockets, strict=True):
            await socket.ask(**_single(name))
        clients = [Client(name, socket) for name, socket in zip(names, sockets, strict=True)]
        for client in clients:
            for _ in range(window):
                client.ask()
        counted: Callable[[], int] = lambda: sum(client.count for client in clients)  # noqa: E731
        sample = await measure(counted, seconds, self._server_pid)
        for client in clients:
            client.is_running = False
        await until(lambda: all(client.count == client.asked for client in clients), 5.0)
        times = sorted(time for client in clients for time in client.times)
        for socket in sockets:
            socket.close()
        return {
            **sample,
            "p50_us": percentile(times, 0.5) * 1e6,
            "p99_us": percentile(times, 0.99) * 1e6,
            "lost": sum(client.asked - client.count for client in clients),
        }


def _single(name: str) -> dict[str, Any]:
    """The first request of a session; a refusal of it would show."""
    return {
        "id": 0,
        "type": "create",
        "from_": f"{runtime_url(name)}/registry",
        "to": ALLOCATION,
        "body": {"scheme": "comm", "value": {"number": 1}},
    }

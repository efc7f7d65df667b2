"""Registrations through the connector: sessions enter hyperties, answered after the commit.

Each session keeps `window` requests under way; what it registers is new.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from time import perf_counter
from typing import Any

from bench.wire import LoadSocket, message

from .clock import measure, percentile, until
from .runtimes import open_runtimes, runtime_url

REGISTRY = "domain://registry.localhost"


class Client:
    """A session that registers one hyperty after another."""

    def __init__(self, name: str, socket: LoadSocket) -> None:
        self.count = 0
        self.asked = 0
        self.is_running = True
        self.times: list[float] = []
        self._name = name
        self._began: list[float] = []
        self._write = socket.transport.write
        socket.on_frames = self._answered

    def ask(self) -> None:
        self.asked += 1
        self._began.append(perf_counter())
        self._write(message(**registration(self._name, self.asked)))

    def _answered(self, number: int) -> None:
        now = perf_counter()
        self.count += number
        self.times += [now - began for began in self._began[:number]]
        del self._began[:number]
        if self.is_running:
            for _ in range(number):
                self.ask()


class RegistrationLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._runs = itertools.count(1)

    async def run(self, sessions: int, window: int, seconds: float) -> dict[str, Any]:
        """One sample, by new sessions with hyperties of their own."""
        run = next(self._runs)
        names: dict[str, list[str]] = {f"registrant-{run}-{n}": [] for n in range(sessions)}
        sockets = await open_runtimes(self._port, names)
        for name, socket in zip(names, sockets, strict=True):
            await socket.ask(**registration(name, 0))  # a refusal would show here
        clients = [Client(name, socket) for name, socket in zip(names, sockets, strict=True)]
        for client in clients:
            for _ in range(window):
                client.ask()
        counted: Callable[[], int] = lambda: sum(client.count for client in clients)  # noqa: E731
        sample = await measure(counted, seconds, self._server_pid)
        for client in clients:
            client.is_running = False
        await until(lambda: all(client.count == client.asked for client in clients), 15.0)
        times = sorted(time for client in clients for time in client.times)
        for socket in sockets:
            socket.close()
        return {
            **sample,
            "p50_us": percentile(times, 0.5) * 1e6,
            "p99_us": percentile(times, 0.99) * 1e6,
            "lost": sum(client.asked - client.count for client in clients),
        }


def registration(name: str, number: int) -> dict[str, Any]:
    """The request of a runtime of the field, with all it writes."""
    return {
        "id": number,
        "type": "create",
        "from_": f"{runtime_url(name)}/registry",
        "to": REGISTRY,
        "body": {
            "value": {
                "user": f"{name}@example.org",
                "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
                "url": f"hyperty://localhost/{name}-{number}",
                "expires": 3600,
                "resources": ["chat"],
                "dataSchemes": ["comm"],
                "runtime": runtime_url(name),
                "status": "live",
                "p2pRequester": f"{runtime_url(name)}/p2prequester/{number}",
                "p2pHandler": f"{runtime_url(name)}/p2phandler/{number}",
            },
            "policy": "policy",
        },
    }

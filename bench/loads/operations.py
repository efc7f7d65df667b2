"""Operations of the components, each of one kind at a time: what one costs the server's processor.

Each session waits for its answer before it asks again. Operations come in pairs that undo one
another, so that a run ends with what it began with: an address allocated and given back, a
subscription made and ended, a hyperty registered and taken out, a session opened and closed on a
socket that is there already.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from bench.processes import cpu_seconds
from bench.wire import LoadSocket

from .registrations import REGISTRY, registration
from .runtimes import ALLOCATION, SM, runtime_url

MANAGER = "mn:/session"


class OperationsLoad:
    def __init__(self, port: int, server_pid: int) -> None:
        self._port = port
        self._server_pid = server_pid
        self._runs = itertools.count(1)

    async def run(self, number: int, sessions: int) -> dict[str, Any]:
        """Milliseconds of the server's processor for an operation of each kind."""
        run = next(self._runs)
        short = [await self._connected(f"short-{run}-{each}") for each in range(number)]
        sample = {"open and close": await self._cost(short, number, _Client.open_and_close)}
        clients = [await self._connected(f"operations-{run}-{each}") for each in range(sessions)]
        for client in clients:
            await client.open()
        for name, pair in {
            "allocate and de-allocate": _Client.allocate_and_deallocate,
            "subscribe and unsubscribe": _Client.subscribe_and_unsubscribe,
            "register and de-register": _Client.register_and_deregister,
            "search, found": _Client.search,
            "search, not found": _Client.search_nobody,
        }.items():
            sample[name] = await self._cost(clients, number, pair)
        for client in clients:
            client.socket.close()
        return sample

    async def _connected(self, name: str) -> _Client:
        return _Client(name, await LoadSocket.connect(self._port))

    async def _cost(
        self,
        clients: list[_Client],
        number: int,
        operation: Callable[[_Client, str], Awaitable[None]],
    ) -> float:
        """Milliseconds for each of `number`; raises ValueError for one that was refused."""
        names = iter([str(each) for each in range(number)])

        async def work(client: _Client) -> None:
            for name in names:
                await operation(client, name)

        before = cpu_seconds(self._server_pid)
        await asyncio.gather(*(work(client) for client in clients))
        return (cpu_seconds(self._server_pid) - before) / number * 1e3


class _Client:
    """A runtime on one socket."""

    def __init__(self, name: str, socket: LoadSocket) -> None:
        self.socket = socket
        self._name = name
        self._url = runtime_url(name)
        self._ids = itertools.count(1)

    async def open(self) -> None:
        await self._ask("open", MANAGER, {}, self._url)
        await self._ask("create", REGISTRY, registration(self._name, 0)["body"])

    async def open_and_close(self, _: str) -> None:
        await self._ask("open", MANAGER, {}, self._url)
        await self._ask("close", MANAGER, {}, self._url)

    async def allocate_and_deallocate(self, _: str) -> None:
        wanted = {"scheme": "comm", "value": {"number": 1}}
        answer = await self._ask("create", ALLOCATION, wanted)
        allocated = answer["value"]["allocated"]
        await self._ask("delete", ALLOCATION, {"childrenResources": allocated})

    async def subscribe_and_unsubscribe(self, name: str) -> None:
        resource = f"comm://localhost/{self._name}-{name}/changes"
        await self._ask("subscribe", SM, {"resources": [resource]}, f"{self._url}/sm")
        await self._ask("unsubscribe", SM, {"resource": resource}, f"{self._url}/sm")

    async def register_and_deregister(self, name: str) -> None:
        asked = registration(self._name, int(name) + 1)["body"]
        await self._ask("create", REGISTRY, asked)
        value = {"user": asked["value"]["user"], "url": asked["value"]["url"]}
        await self._ask("delete", REGISTRY, {"value": value})

    async def search(self, _: str) -> None:
        await self._ask("read", REGISTRY, {"resource": f"hyperty://localhost/{self._name}-0"})

    async def search_nobody(self, name: str) -> None:
        asked = {"resource": f"hyperty://localhost/nobody-{name}"}
        await self._ask("read", REGISTRY, asked, code=404)

    async def _ask(
        self, type_: str, to: str, body: Any, from_: str = "", code: int = 200
    ) -> dict[str, Any]:
        from_ = from_ or f"{self._url}/registry"
        id_ = next(self._ids)
        return await self.socket.ask(code, id=id_, type=type_, from_=from_, to=to, body=body)

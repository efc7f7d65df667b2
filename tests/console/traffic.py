"""Runtimes that talk while an operator looks on: an event loop of their own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from websockets.exceptions import ConnectionClosed

from tests.client import Client, address
from tests.node import Node

T = TypeVar("T")
LIMIT = 30.0


class Traffic:
    """Runtimes of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sending: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(LIMIT)

    def runtime(self, runtime_url: str = "") -> Client:
        """A runtime with a session."""

        async def opened() -> Client:
            client = await self._node.ws().connect()
            self._clients.append(client)
            return await client.open(runtime_url)

        return self.do(opened())

    def crowd(self, number: int) -> None:
        """So many runtimes with a session, which are silent."""

        async def come() -> None:
            gate = asyncio.Semaphore(50)

            async def one() -> None:
                async with gate:
                    self._clients.append(await (await self._node.ws().connect()).open())

            await asyncio.gather(*(one() for _ in range(number)))

        self.do(come())

    def told_to_come_back(self) -> int:
        """How many runtimes were, as when their worker stops."""
        return sum(client.socket.close_code == 3001 for client in self._clients)

    def pair(self, rate: float, size: int = 100) -> tuple[Client, str]:
        """A runtime that changes a data object so often a second, and one that hears it.

        Returns:
            who sends, and the address it sends to.
        """
        sender, reader = self.runtime(), self.runtime()
        heard = address("comm") + "/changes"
        self.do(reader.subscribe(heard))
        self.send(sender, rate, "update", heard, {"value": "x" * size},
                  sender=heard.removesuffix("/changes"))  # fmt: skip
        return sender, heard

    def send(
        self, client: Client, rate: float, type_: str, to: str, body: Any, **more: Any
    ) -> None:
        """Have a runtime send the same again and again."""

        async def go_on() -> None:
            with suppress(ConnectionClosed, OSError):
                while True:
                    await client.send(type_, to, body, **more)
                    await asyncio.sleep(1 / rate)

        self.go_on(go_on())

    def go_on(self, what: Coroutine[Any, Any, None]) -> None:
        """Do something until all stops."""
        self._sending.append(asyncio.run_coroutine_threadsafe(_task(what), self._loop).result(5))

    def stop(self) -> None:
        async def end() -> None:
            for task in self._sending:
                task.cancel()
            for client in self._clients:
                await client.hang_up()

        with suppress(Exception):
            self.do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)


async def _task(what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(what)


@contextmanager
def talking(node: Node) -> Iterator[Traffic]:
    traffic = Traffic(node)
    try:
        yield traffic
    finally:
        traffic.stop()

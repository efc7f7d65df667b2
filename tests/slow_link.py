"""A TCP connection to a server that takes its time: what the server says arrives late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

LIMIT = 20.0


class SlowLink:
    """Listens on a port of its own, and passes on what comes to `host`:`port` and back.

    What the server says arrives `delay` seconds later; it may be set at any time. It works in a
    thread, so that tests of any event loop can share it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.delay = 0.0
        self.port = 0
        self._server = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._ways: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._thread.start()
        listening = self._run(asyncio.start_server(self._meet, "127.0.0.1", 0))
        self.port = listening.sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    async def _end(self) -> None:
        for way in self._ways:
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)

    async def _meet(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(*self._server)
        for way in (self._pass_on(near, to_far), self._pass_on_late(far, to_near)):
            task = self._loop.create_task(way)
            self._ways.add(task)
            task.add_done_callback(self._ways.discard)

    async def _pass_on(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            to.write(data)
            await to.drain()
        to.close()

    async def _pass_on_late(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        due = self._loop.time()
        while data := await source.read(65536):
            due = max(due, self._loop.time() + self.delay)  # one never overtakes another
            self._loop.call_at(due, to.write, data)
        self._loop.call_at(due, to.close)


@contextmanager
def slow_link(host: str, port: int) -> Iterator[SlowLink]:
    """A link while the block runs."""
    link = SlowLink(host, port)
    link.start()
    try:
        yield link
    finally:
        link.stop()

"""A way between two servers that a test may cut: bytes stop, and nobody is told, as when a network
loses them. Runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Self
from urllib.parse import urlsplit


class Way:
    """A TCP proxy on a port of its own to the server that a URL names; `url` leads through it.

    `instead` is said in the place of something that the server says, and is as long.
    """

    def __init__(self, url: str, instead: tuple[bytes, bytes] = (b"", b"")) -> None:
        self._instead = instead
        parts = urlsplit(url)
        self._to = parts.hostname or "127.0.0.1", parts.port or 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_told = True
        self._half_open: list[asyncio.StreamWriter] = []
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        user = f"{parts.username}@" if parts.username else ""
        self.url = parts._replace(netloc=f"{user}127.0.0.1:{port}").geturl()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def cut(self) -> None:
        """From now on nothing passes; connections stay as they are."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def lose(self, is_told: bool = True) -> None:
        """Lose every connection; the ends are told, or stay half open. New ones pass."""
        self._is_told = is_told
        self._loop.call_soon_threadsafe(lambda: [each.cancel() for each in self._tasks])

    def mend(self) -> None:
        """What waited passes, and all that comes."""
        self._loop.call_soon_threadsafe(self._open.set)

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        for from_, to, instead in (
            (reader, far_writer, (b"", b"")),
            (far_reader, writer, self._instead),
        ):
            task = asyncio.create_task(self._pass(from_, to, instead))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        instead: tuple[bytes, bytes],
    ) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data.replace(*instead) if instead[0] else data)
                await writer.drain()
        except OSError:
            pass
        except asyncio.CancelledError:
            if self._is_told:
                writer.transport.abort()
            self._half_open.append(writer)
            raise
        await self._open.wait()
        writer.close()

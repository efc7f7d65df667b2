"""The connection to a network's server, which may be slower than the gateway."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from msgnode.legacy.connection import UNSENT_BYTES, Connection


class SlowServer:
    """A connection's writer and transport; the server reads all that waits, or nothing."""

    def __init__(self) -> None:
        self.transport = self
        self._waiting = 0
        self._has_read = asyncio.Event()

    def write(self, data: bytes) -> None:
        self._waiting += len(data)
        self._has_read.clear()

    def read(self) -> None:
        self._waiting = 0
        self._has_read.set()

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def is_closing(self) -> bool:
        return False

    async def drain(self) -> None:
        await self._has_read.wait()


async def test_who_writes_again_as_the_server_reads_is_told_when_it_has_read_that_too() -> None:
    server, room = SlowServer(), asyncio.Event()
    connection = Connection()
    connection._writer = cast(Any, server)

    def has_drained() -> None:
        if not connection.is_full:
            room.set()

    connection.on_drained = has_drained
    much = b"x" * (UNSENT_BYTES + 1)
    connection.send(much)
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.is_full
    connection.send(much)  # is written before the task that waits has its turn
    server.read()
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.is_full
    server.read()
    async with asyncio.timeout(5):
        await room.wait()

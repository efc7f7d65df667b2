"""One node under attack for all of these tests, and bystanders who must not notice.

The bystanders talk through the node all the while a test runs; every word must arrive within
PATIENCE. The node's memory may not grow by more than ROOM from the first attack to the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.client import Client
from tests.console.browser import Browser, log_in
from tests.node import Node, running

PATIENCE = 10.0  # seconds a word may take on a busy machine
ROOM = 96 * 1024 * 1024
LIMITS = {
    "MAX_FRAME_BYTES": 64 * 1024,
    "OUTBOX_BYTES": 1024 * 1024,
    "HANDSHAKE_TIMEOUT": 3,
    "MAX_MESSAGES_PER_SECOND": 2000,
    "LOGIN_FAILURES": 3,
    "RESUME": "with-proof",
    "SHARE_RUNTIME_URL": "false",
}


@pytest.fixture(scope="session")
def attacked(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[tuple[Node, Browser]]:
    place = tmp_path_factory.mktemp("attacked")
    with running(place, template, **LIMITS) as node:
        browser = log_in(node)
        process = psutil.Process(node.pid)
        before = process.memory_info().rss
        yield node, browser
        assert node.is_running(), node.log()
        grown = process.memory_info().rss - before
        assert grown < ROOM, f"the node grew by {grown / 1024 / 1024:.0f} MiB"
        assert "Traceback" not in node.log()


@pytest.fixture
def target(attacked: tuple[Node, Browser]) -> Node:
    return attacked[0]


@pytest.fixture
def browser_of_operator(attacked: tuple[Node, Browser]) -> Browser:
    return attacked[1]


class Bystanders:
    """Two runtimes that talk; `worst` is the longest a word took, in seconds."""

    def __init__(self, speaker: Client, hearer: Client) -> None:
        self._speaker, self._hearer = speaker, hearer
        self.words = 0
        self.have_finished = False
        self.worst = 0.0

    async def talk(self) -> None:
        while not self.have_finished:
            await self.word()

    async def word(self) -> None:
        self.words += 1
        mark = f"word-{self.words}"
        began = time.monotonic()
        await self._speaker.send("execute", self._hearer.runtime_url, {"value": mark}, id=mark)
        async with asyncio.timeout(PATIENCE):
            await self._hearer.expect(id=mark)
        self.worst = max(self.worst, time.monotonic() - began)
        await asyncio.sleep(0.01)  # a pace of talking, not a wait for anything


@asynccontextmanager
async def talking(node: Node) -> AsyncIterator[Bystanders]:
    async with node.ws() as one, node.ws() as other:
        pair = Bystanders(await one.open(), await other.open())
        await pair.word()
        task = asyncio.create_task(pair.talk())
        try:
            yield pair
        finally:
            pair.have_finished = True  # a cancellation could be lost in wait_for of Python 3.11
            await task
        assert pair.words > 1
        assert pair.worst < PATIENCE


@pytest.fixture
async def served(target: Node) -> AsyncIterator[Bystanders]:
    """Others are served while the test runs, and after it."""
    async with talking(target) as pair:
        yield pair


@pytest.fixture
async def come_in(target: Node) -> AsyncIterator[Any]:
    """Brings a client with an open session to the node under attack."""
    opened: list[Client] = []

    async def arrive() -> Client:
        client = target.ws()
        await client.connect()
        opened.append(client)
        return await client.open()

    yield arrive
    for client in opened:
        await client.hang_up()

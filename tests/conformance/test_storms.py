"""Many connections are lost at once, and again: what is said to their runtimes right behind it is
kept for each, and heard once each when they are back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from bench.wire import LoadSocket, message
from tests.client import runtime
from tests.node import Node, eventually

RUNTIMES = 150
LIMIT = 30.0


class Runtime:
    """Comes back whenever it is told to; `heard` is what it was sent, but for answers."""

    def __init__(self) -> None:
        self.url = runtime()
        self.heard: list[int] = []
        self.token = ""
        self._socket: LoadSocket

    async def open(self, node: Node) -> None:
        socket = await self._connected(node)
        body = await socket.ask(id=1, type="open", from_=self.url, to="mn:/session")
        self.token = body["runtimeToken"]

    async def come_back(self, node: Node) -> None:
        session = f"{self.url}/{self.token}"
        socket = await self._connected(node)
        body = await socket.ask(id=1, type="re-open", from_=session, to="mn:/session")
        assert "runtimeToken" not in body, "the session was lost"

    def lose(self) -> None:
        """Its connection is cut, before this turn of the loop is over."""
        self._socket.transport.abort()

    def say(self, number: int, to: str) -> None:
        said: dict[str, Any] = {"from_": self.url, "to": to, "body": {"n": number}}
        self._socket.transport.write(message(id=100 + number, type="update", **said))

    async def _connected(self, node: Node) -> LoadSocket:
        self._socket = await LoadSocket.connect(node.port)
        self._socket.on_text = self._hear
        return self._socket

    def _hear(self, text: bytes) -> None:
        if b'"n":' in text:
            self.heard.append(msgspec.json.decode(text)["body"]["n"])


async def test_what_is_said_to_many_that_were_lost_at_once_is_heard_once_each(node: Node) -> None:
    talker, crowd = Runtime(), [Runtime() for _ in range(RUNTIMES)]
    await asyncio.gather(*(each.open(node) for each in (talker, *crowd)))
    for storm in range(2):
        for each in crowd:
            each.lose()
        await asyncio.sleep(0)
        for each in crowd:
            talker.say(storm, each.url)
        back = [asyncio.create_task(each.come_back(node)) for each in crowd]
        await asyncio.gather(*back)
        try:
            async with asyncio.timeout(LIMIT):
                while not all(len(each.heard) > storm for each in crowd):
                    await eventually()
        except TimeoutError:
            pass
        wrong = [each.heard for each in crowd if each.heard != [*range(storm + 1)]]
        assert not wrong, f"{len(wrong)} of {len(crowd)}: {wrong[:3]}"
    for each in (*crowd, talker):
        each.lose()

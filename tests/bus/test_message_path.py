"""docs/message-path.md is the path a frame takes: the calls of a real one are compared with it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from msgnode.node import Node
from msgnode.sessions.connection import Connection
from tests.fakes import FakeLink
from tests.node import ROOT

PAGE = (ROOT / "docs" / "message-path.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
OURS = re.compile(rf"{re.escape(str(ROOT))}/((?:msgnode|policies|registry|spark)/[\w/]+\.py)")
SM = "domain://msg-node.localhost/sm"


class Call(NamedTuple):
    file: str
    function: str


class Socket(FakeLink):
    """A socket that says when something was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_news = asyncio.Event()

    def write(self, frame: bytes) -> None:
        super().write(frame)
        self.has_news.set()


class Runtime:
    """A runtime at a worker of this process."""

    def __init__(self, node: Node, name: str) -> None:
        self.url = f"runtime://localhost/{name}"
        self.hyperty = f"hyperty://localhost/{name}"
        self.link = Socket()
        parts = node.parts
        self.connection = parts.connections.connection(Connection, self.link, "127.0.0.1")

    async def ask(self, type_: str, to: str, sender: str, **body: Any) -> dict[str, Any]:
        """Send a request and wait for the node's answer."""
        seen = len(self.link.frames)
        self.link.has_news.clear()
        self.send(type_, to, sender, **body)
        async with asyncio.timeout(60):
            await self.link.has_news.wait()
        answer: dict[str, Any] = json.loads(self.link.frames[seen])["body"]
        return answer

    def send(self, type_: str, to: str, sender: str, **body: Any) -> None:
        message = {"id": 1, "type": type_, "from": sender, "to": to, "body": body}
        self.connection.frame_received(json.dumps(message, separators=(",", ":")).encode())


@pytest.mark.django_db(transaction=True)
async def test_a_frame_takes_the_documented_path() -> None:
    node = Node()
    await node.start()
    try:
        alice, bob = Runtime(node, "alice"), Runtime(node, "bob")
        for each in (alice, bob):
            assert (await each.ask("open", "mn:/session", each.url))["code"] == 200
            answer = await each.ask("subscribe", SM, f"{each.url}/sm", resources=[each.hyperty])
            assert answer["code"] == 200
        alice.send("create", bob.hyperty, alice.hyperty, value="the first fills caches")
        before = len(bob.link.frames)
        calls = recorded(alice, bob.hyperty)
        assert len(bob.link.frames) == before + 1
        for each in (alice, bob):
            each.connection.lost()
    finally:
        await node.stop()
    compare(calls)


def recorded(sender: Runtime, to: str) -> list[Call]:
    """The calls of our own functions while a node takes one frame."""
    codes: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.append(frame.f_code)

    sys.setprofile(note)
    try:
        sender.send("create", to, sender.hyperty, value="hello")
    finally:
        sys.setprofile(None)
    return [
        Call(found[1], code.co_qualname)
        for code in codes
        if (found := OURS.fullmatch(code.co_filename))
    ]


def compare(calls: list[Call]) -> None:
    rest = iter(calls)
    for step in STEPS:
        assert any(call == step for call in rest), f"{step} is not called there:\n{_listed(calls)}"
    assert {call.file for call in calls} == {file for file, _ in STEPS}
    most = re.search(r"\*\*(\d+) calls in (\d+) files\*\*", PAGE)
    assert most
    assert len(calls) <= int(most[1]), _listed(calls)
    assert len({call.file for call in calls}) == int(most[2])


def _listed(calls: list[Call]) -> str:
    return "\n".join(f"{call.file} {call.function}" for call in calls)

"""A MessageBUS by itself: what left it, and what its error hook was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgnode.runtime.python.bus import Bus
from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message

R = "runtime://d/1"
A, B, FAR = "hyperty://d/a", "hyperty://d/b", "hyperty://f/x"


class Out:
    """The way outside, as a list."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.stubs: list[str] = []
        self.stub = "runtime://f/protostub/1"

    def send(self, message: Message, size: int, stub: str) -> str:
        self.sent.append(message)
        self.stubs.append(stub)
        return stub or self.stub


class Bench:
    """A MessageBUS, what left it, and what its error hook was told."""

    def __init__(self, **options: Any) -> None:
        self.faults: list[Fault] = []
        self.out = Out()
        self.bus = MessageBus(R, self.out, **options)
        self.bus.on_error(self.faults.append)

    def listen(self, address: str, bus: Bus | None = None) -> list[Message]:
        got: list[Message] = []
        (bus or self.bus).add_listener(address, got.append)
        return got


def message(to: Any, type_: str = "update", sender: str = A, **more: Any) -> Message:
    return {"type": type_, "from": sender, "to": to, "body": {"value": [1]}, **more}


def answer(to: str, id_: Any, body: Any, sender: str = B) -> Message:
    return {"id": id_, "type": "response", "from": sender, "to": to, "body": body}


async def turn() -> None:
    """Let the queue of the bus empty itself."""
    for _ in range(5):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.005)

"""Runtimes that come back whenever their socket is lost, and write down what they were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from websockets.exceptions import WebSocketException

from tests.client import Client, Frame, code
from tests.node import Node

from .nodes import subscribe

_AWAY = (OSError, TimeoutError, WebSocketException, AssertionError)
"""What a client meets while its node is down or not ready."""


class Told(NamedTuple):
    """An update of a number, or (None) that something was lost."""

    at: float
    number: int | None


class Returning:
    """One runtime. `subscribes` are addresses that it has at its own node, in each new session."""

    def __init__(self, node: Node, domain: str, name: str, *subscribes: str) -> None:
        self.client: Client | None = None
        self.losses: list[float] = []
        self.is_there = asyncio.Event()
        self._node, self._domain = node, domain
        self._runtime_url = f"runtime://{domain}/{name}"
        self._subscribes = subscribes
        self._token = ""

    async def run(self) -> None:
        """Be there until cancelled."""
        while True:
            client = Client(f"ws://127.0.0.1:{self._node.port}/ws")
            try:
                await self._arrive(client)
                self.client = client
                self.is_there.set()
                while True:
                    with suppress(TimeoutError):
                        self.take(await client.receive())
            except _AWAY:
                self.is_there.clear()
                self.client = None
                self.losses.append(time.monotonic())
                await asyncio.sleep(0.2)
            finally:
                with suppress(*_AWAY):
                    await client.hang_up()

    async def _arrive(self, client: Client) -> None:
        await client.connect()
        if self._token and code(await client.reopen(self._runtime_url, self._token)) == 200:
            self._take_inbox(client)
            return
        self._token = ""
        await client.open(self._runtime_url)
        for address in self._subscribes:
            assert code(await subscribe(client, self._domain, address)) == 200
        self._token = client.token
        self._take_inbox(client)

    def _take_inbox(self, client: Client) -> None:
        while client.inbox:
            self.take(client.inbox.popleft())

    def take(self, frame: Frame) -> None:
        """A frame has come."""

    async def say(self, *words: object, **more: object) -> bool:
        """Send a message; whether there was a socket that took it."""
        if self.client is None:
            return False
        try:
            await self.client.send(*words, **more)  # type: ignore[arg-type]
        except _AWAY:
            return False
        return True

    async def steadily(self, a_second: float, do: Callable[[int], object]) -> None:
        """Do something so many times a second while it is there, until cancelled."""
        number, next_at = 0, time.monotonic()
        while True:
            await self.is_there.wait()
            number += 1
            await do(number)  # type: ignore[misc]
            next_at = max(next_at + 1 / a_second, time.monotonic() - 0.1)
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))


class Observer(Returning):
    """Writes down the numbers of the updates that come, and each sign that some did not."""

    def __init__(self, node: Node, domain: str, name: str, changes: str) -> None:
        super().__init__(node, domain, name, changes)
        self.told: list[Told] = []
        self._changes = changes

    def take(self, frame: Frame) -> None:
        value = frame.get("body", {}).get("value")
        if frame.get("to") == self._changes:
            self.told.append(Told(time.monotonic(), value))
        elif value == "gap":
            self.told.append(Told(time.monotonic(), None))

    def unsignalled(self, within: float) -> list[tuple[int, int]]:
        """Pairs of numbers between which some are missing, and nothing has said so in time."""
        signs = sorted([*self.losses, *(each.at for each in self.told if each.number is None)])
        updates = [each for each in self.told if each.number is not None]
        return [
            (before.number, after.number)
            for before, after in zip(updates, updates[1:], strict=False)
            if after.number != before.number + 1
            and not any(before.at - 1.0 <= sign <= after.at + within for sign in signs)
        ]


class Asker(Returning):
    """Asks, and keeps what was not answered."""

    def __init__(self, node: Node, domain: str, name: str, to: str) -> None:
        super().__init__(node, domain, name)
        self.codes: Counter[int] = Counter()
        self.asked: dict[str, float] = {}
        self.round_trips: list[float] = []
        self._to = to

    async def ask(self, number: int) -> None:
        id_ = f"r{number}"
        self.asked[id_] = time.monotonic()
        if not await self.say("read", self._to, {"value": number}, id=id_):
            del self.asked[id_]

    def take(self, frame: Frame) -> None:
        at = self.asked.pop(str(frame.get("id")), None)
        if at is not None and frame.get("type") == "response":
            self.codes[code(frame)] += 1
            if code(frame) == 200:
                self.round_trips.append(time.monotonic() - at)

    def unanswered(self) -> list[float]:
        """When those were asked that have no answer though the socket they left by stayed open."""
        return [
            at
            for at in self.asked.values()
            if not any(at <= lost <= at + 15.0 for lost in self.losses)
        ]


class Answerer(Returning):
    """Answers every request."""

    def __init__(self, node: Node, domain: str, name: str, address: str) -> None:
        super().__init__(node, domain, name, address)
        self._tasks: set[asyncio.Task[bool]] = set()

    def take(self, frame: Frame) -> None:
        if frame.get("type") != "read":
            return
        body = {"code": 200, "value": frame["body"].get("value")}
        answer = self.say("response", frame["from"], body, id=frame["id"], sender=frame["to"])
        task = asyncio.create_task(answer)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

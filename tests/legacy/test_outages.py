"""Servers that are killed, frozen and restarted ten times, while messages pass both ways.

At night; test_prosody and test_kamailio have one outage each, by day.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.client import Client, code

from .kamailio import Phone, phone
from .prosody import User, user
from .test_kamailio import ALICES
from .test_kamailio import BOB as PHONE
from .test_kamailio import world as kamailio_world  # noqa: F401  (a fixture)
from .test_prosody import BOB as USER
from .test_prosody import World, say
from .test_prosody import world as prosody_world  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
OUTAGES = ["killed", "frozen", "killed", "restarted", "killed", "frozen for long", "killed",
           "restarted", "killed", "frozen"]  # fmt: skip
MOST = 50_000
"""Messages in each direction."""
APART, BETWEEN = 0.02, 3.0
LEAST = 200
"""Messages that are taken in spite of it all: 400 to 2,000 were seen."""


class Told:
    """What becomes of the messages of alice to bob, and of those to her."""

    def __init__(self, alice: Client, to: str) -> None:
        self._alice, self._to = alice, to
        self._waiting: dict[Any, str] = {}
        self.codes: dict[str, int] = {}
        self.taken: list[str] = []
        self.writes = True

    @property
    def open(self) -> int:
        return len(self._waiting)

    async def write(self) -> None:
        """Write one message after the other."""
        for number in range(MOST):
            if not self.writes:
                return
            text = f"m{number}"
            self._waiting[await say(self._alice, text, self._to)] = text
            await asyncio.sleep(APART)

    async def read(self) -> None:
        """Take answers, and answer what is asked."""
        while True:
            frame = await self._alice.receive()
            if frame["type"] == "create":
                self.taken.append(frame["body"]["value"]["content"])
                head = {"id": frame["id"], "sender": frame["to"]}
                await self._alice.send("response", frame["from"], {"code": 200}, **head)
            elif frame["type"] == "response" and code(frame) >= 200:
                text = self._waiting.pop(frame["id"], "")
                self.codes[text] = code(frame)

    def shown(self, name: str, heard: list[str]) -> None:
        """Print what became of them, and see that nothing that was taken is missing."""
        said = list(self.codes.values())
        came = dict.fromkeys(heard)
        print(f"{name}: {len(said)} out: { {each: said.count(each) for each in set(said)} }, "
              f"{len(heard) - len(came)} twice")  # fmt: skip
        known = [text for text, each in self.codes.items() if each == 200]
        missing = [text for text in known if text not in came]
        assert not missing, missing
        assert self.open == 0
        in_order = sorted((each for each in came if each in known), key=lambda each: int(each[1:]))
        assert [each for each in came if each in known] == in_order
        assert said.count(200) > LEAST


async def _out(world: World, how: str, back: Callable[[], Awaitable[Any]]) -> None:
    """Have one outage of the server, and its user come back."""
    if how.startswith("frozen"):
        world.server.send_signal(signal.SIGSTOP)
        await asyncio.sleep(35.0 if how == "frozen for long" else 3.0)
        world.server.send_signal(signal.SIGCONT)
    else:
        if how == "restarted":
            world.server.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
        world.server.stop()
        await asyncio.to_thread(world.server.start)
    await world.live()
    await back()


@asynccontextmanager
async def _busy(*each: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in each]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ten(world: World, told: Told, back: Callable[[], Awaitable[Any]]) -> None:
    for how in OUTAGES:
        await asyncio.sleep(BETWEEN)
        await _out(world, how, back)
    await asyncio.sleep(BETWEEN)
    told.writes = False
    async with asyncio.timeout(60):
        while told.open:  # noqa: ASYNC110  (a test's condition)
            await asyncio.sleep(0.1)


async def test_case_6_7_ten_outages_of_prosody_lose_nothing_that_was_taken(
    prosody_world: World,  # noqa: F811
) -> None:
    world = prosody_world
    await world.live()
    async with world.alice() as alice, user(world.server) as bob:
        told = Told(alice, USER)

        async def write(bob: User) -> None:
            for number in range(MOST):
                if bob.online.is_set():
                    bob.write(f"n{number}", asks=True)
                await asyncio.sleep(APART)

        async def back() -> None:
            async with asyncio.timeout(30):
                await bob.online.wait()

        async with _busy(told.read(), told.write(), write(bob)):
            await _ten(world, told, back)
        told.shown("prosody", [each for each in bob.texts if each.startswith("m")])
        numbers = [int(each[1:]) for each in told.taken]
        print(f"{len(numbers)} in, {len(numbers) - len(set(numbers))} twice")
        assert sorted(set(numbers)) == list(dict.fromkeys(numbers))
        assert len(bob.receipts) <= len(numbers)


async def test_case_44_45_ten_outages_of_kamailio_lose_nothing_that_was_taken(
    kamailio_world: World,  # noqa: F811
) -> None:
    world = kamailio_world
    await world.live()
    async with world.alice() as alice, phone(world.server) as bob:
        told = Told(alice, PHONE)
        said: dict[str, int] = {}

        async def write(bob: Phone) -> None:
            for number in range(MOST):
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        said[f"n{number}"] = (await bob.write_to(ALICES, f"n{number}")).code
                await asyncio.sleep(APART)

        async with _busy(told.read(), told.write(), write(bob)):
            await _ten(world, told, bob.register)
        told.shown("kamailio", [text for _, text in bob.texts])
        codes = list(said.values())
        print(f"in: { {each: codes.count(each) for each in set(codes)} }, "
              f"{len(told.taken) - len(set(told.taken))} twice")  # fmt: skip
        assert {text for text, each in said.items() if each == 200} <= set(told.taken)
        assert codes.count(200) > LEAST

"""What is asked of other workers before a runtime gets a session, and what its answer waits for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import Any

import pytest

from msgnode.bus.holders import NoOthers
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.digest import digest
from msgnode.core.errors import NodeError, Unavailable
from msgnode.core.pending import Pending
from msgnode.sessions.connection import Connection, ConnectionSettings
from msgnode.sessions.flow_control import FlowLimits
from msgnode.sessions.handshake import SessionLocator
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.session_factory import SessionSettings
from tests.fakes import FakeLink, FakeSession
from tests.node import eventually
from tests.sessions.doors import handshake
from tests.sessions.test_states import Store

URL = "runtime://d/1"


class Others(NoOthers):
    """The other workers, who answer when they are told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.are_silent = False
        self.is_certain = True
        self._told: set[Hashable] = set()
        self._waiting: list[Callable[[], None]] = []

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        if key not in self._told:
            raise Pending("", partial(self._ask, key, runtime_url))
        self._told.discard(key)
        if self.are_silent:
            raise Unavailable("silent")

    def is_runtime_known(self, runtime_url: str) -> bool:
        return self.is_certain

    def _ask(self, key: Hashable, runtime_url: str, known: Callable[[], None]) -> None:
        self.asked.append(runtime_url)
        self._told.add(key)
        self._waiting.append(known)

    def answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for known in waiting:
            known()


class Door:
    """A door of one of several workers, before a store that commits when told to."""

    def __init__(self) -> None:
        settings = SessionSettings("always", True, True, 60, 100_000, 50, 3, "domain://d")
        self.store = Store()
        store: Any = self.store
        self.table = RoutingTable()
        self.sessions = SessionManager(settings, self.table, store, lambda *_: None)
        self.others = Others()
        self.fetched: list[str] = []
        self.findable: dict[str, asyncio.Future[None]] = {}  # by runtime URL
        self.locator = SessionLocator(self.sessions, self.table, self.others, self._fetch)
        self.door = handshake(
            settings, self.sessions, self.table, store, self.locator, self.findable.get
        )
        self.link: Any = FakeLink()
        limits = ConnectionSettings(FlowLimits(1e6, 1e9, max_pending=2), handshake_timeout=60)
        self.connection = Connection(self.link, "192.0.2.1", self.sessions, self._carry, limits)

    async def _fetch(self, session_id: str) -> None:
        self.fetched.append(session_id)

    def _carry(self, frame: bytes, caller: Connection, message: Any = None) -> None:
        message = messages.parse(frame)
        try:
            self.door.handle(message, caller)
        except Pending as fact:
            caller.hold(frame, fact)
        except NodeError as error:
            caller.put(messages.reply(message, messages.error_body(error)))

    def say(self, type_: str, sender: str = URL) -> None:
        frame = {"id": 1, "type": type_, "from": sender, "to": "mn:/session"}
        self.connection.frame_received(json.dumps(frame).encode())

    async def commit(self) -> None:
        await self.store.writer.commit(1, None)

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(frame)["body"] for frame in self.link.frames]


def beside(door: Door) -> Door:
    """The same door, at another connection."""
    again = Door.__new__(Door)
    again.__dict__.update(door.__dict__)
    again.link = FakeLink()
    again.connection = Connection(
        again.link, "192.0.2.1", door.sessions, door._carry, door.connection._settings
    )
    return again


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    yield door
    door.connection.end(1000, "")


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_new_session_comes_after_the_others_were_asked_and_all_can_find_it(
    door: Door,
) -> None:
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    door.findable[URL] = found
    door.say("open")
    await turns()
    assert (door.others.asked, door.table.runtimes) == ([URL], {})
    door.others.answer()
    await turns()
    assert URL in door.table.runtimes
    await door.commit()
    await turns()
    assert door.answers == []
    found.set_result(None)
    await turns()
    assert (door.others.asked, door.answers) == ([URL, URL], []), "who came at the same moment"
    door.others.answer()
    await turns()
    assert [each["code"] for each in door.answers] == [200]


@pytest.mark.parametrize(
    ("rival", "is_let_in"),
    [("has the smaller id", False), ("has the larger id", True), ("does not give way", False)],
)
async def test_of_two_that_find_each_other_the_one_with_the_smaller_id_waits_for_the_other(
    door: Door, rival: str, is_let_in: bool
) -> None:
    door.door._rivals._shares = False
    there = FakeSession(f"{URL}/tab")
    there.is_here, there.id = False, ("0" if rival == "has the smaller id" else "f") * 32
    door.say("open")
    door.others.answer()
    await turns()
    door.table.add_runtime(there)
    await door.commit()
    await turns()
    door.others.answer()
    await turns()
    assert bool(door.answers) == (there.id[0] == "0")
    if is_let_in:
        door.table.remove_runtime(there)
    async with asyncio.timeout(10):
        while not door.answers:
            await eventually()
    assert [each["code"] for each in door.answers] == [200 if is_let_in else 503]
    assert list(door.table.runtimes) == [URL if is_let_in else there.runtime_url]


async def test_one_that_is_resumed_before_it_is_decided_on_gives_way_as_well(door: Door) -> None:
    door.door._rivals._shares = False
    rival = FakeSession(f"{URL}/tab")
    rival.is_here = False
    door.say("open")
    door.others.answer()
    await turns()
    token = door.connection.session.token.decode() if door.connection.session else ""
    await door.commit()
    await turns()
    door.connection.lost()
    again = beside(door)
    again.say("re-open", f"{URL}/{token}")
    await turns()
    door.table.add_runtime(rival)
    door.others.answer()
    await turns()
    assert door.table.runtimes == {rival.runtime_url: [rival]}
    assert again.answers == []
    async with asyncio.timeout(10):
        while again.link.closed is None:
            await door.commit()  # of the loss, and of what it was resumed with
            await eventually()
    assert again.answers == []


async def test_where_a_session_of_the_runtime_cannot_be_heard_of_none_is_opened(door: Door) -> None:
    door.others.are_silent = True
    door.say("open")
    door.others.answer()
    await turns()
    assert [each["code"] for each in door.answers] == [503]
    assert not door.table.runtimes


async def test_a_token_opens_none_only_after_the_others_were_asked(door: Door) -> None:
    door.say("re-open", f"{URL}/a-token")
    remote = FakeSession(URL)
    remote.is_here = False
    remote.token_hash = digest("a-token")
    door.table.add_runtime(remote)  # as its worker says before it answers
    door.others.answer()
    await turns()
    assert door.fetched == [remote.id]
    assert door.others.asked == [URL]


async def test_a_session_that_the_runtime_left_here_is_resumed_without_a_question(
    door: Door,
) -> None:
    door.say("open")
    door.others.answer()
    await turns()
    await door.commit()
    await turns()
    door.others.answer()
    session = door.connection.session
    assert session is not None
    door.connection.lost()
    again = beside(door)
    again.say("open")
    await door.commit()
    await turns()
    assert again.connection.session is session
    assert door.others.asked == [URL, URL], "both as it was opened"
    again.connection.end(1000, "")


async def test_a_token_is_located_at_whichever_worker(door: Door) -> None:
    locating = asyncio.create_task(door.locator.locate(URL, "a-token"))
    await turns()
    assert not locating.done()
    remote = FakeSession(URL)
    remote.token_hash = digest("a-token")
    door.table.add_runtime(remote)
    door.others.answer()
    assert await asyncio.wait_for(locating, 10) is remote
    nobodys = asyncio.create_task(door.locator.locate(URL, "no-token"))
    await turns()
    door.others.answer()
    assert await asyncio.wait_for(nobodys, 10) is None


@pytest.mark.parametrize("is_certain", [True, False])
async def test_a_session_that_cannot_be_found_out_has_not_ended(
    door: Door, is_certain: bool
) -> None:
    door.others.is_certain = is_certain
    asking = asyncio.ensure_future(door.locator.locate(URL, "token"))
    await turns()
    door.others.answer()
    if is_certain:
        assert await asking is None
    else:
        with pytest.raises(Unavailable):
            await asking

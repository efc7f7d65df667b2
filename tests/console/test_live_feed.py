"""The live feed: who may watch, pages that do not read, log-outs, a database that is away."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Group, User
from django.db import DatabaseError
from django.test import Client

from msgnode.console import roles
from msgnode.console.live import access, consumer
from msgnode.console.live import feed as live_feed
from msgnode.console.live.consumer import LiveConsumer
from msgnode.console.live.feed import (
    GONE,
    MOST_OF_ONE,
    NOT_KNOWN,
    RESTARTS,
    Feed,
    FeedFull,
)

LIMIT = 10.0


class Page:
    """A browser's page at the socket, without a server between."""

    def __init__(self, feed: Feed, key: str = "k", session: Any = None, **more: Any) -> None:
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._feed = feed
        self._key = key
        self._more = more
        self._route = {"kwargs": {"session": session} if session else {}}

    async def history(self, topic: str, length: str) -> list[dict[str, Any]]:
        if length == "away":
            raise DatabaseError
        return {"minutes": [{"at": 1.0}]}[length]

    async def serve(self, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        cookie = f"{django_settings.SESSION_COOKIE_NAME}={self._key}".encode()
        own = [(b"host", b"n:1"), (b"origin", b"http://n:1"), (b"cookie", cookie)]
        scope = {"type": "websocket", "headers": own if headers is None else headers,
                 "url_route": self._route, "extensions": {"msgnode.link": self}}  # fmt: skip
        allowed: Callable[[list[str]], set[str]] = set
        served = LiveConsumer(**{"feed": self._feed, "history": self.history,
                                 "allowed": allowed, **self._more})  # fmt: skip
        await self.said.put({"type": "websocket.connect"})
        await served(scope, self.said.get, self.heard.put)

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        """The link of the server: what the page says, until it leaves."""
        while (event := await self.said.get())["type"] == "websocket.receive":
            receiver(event["text"].encode())

    def write(self, frame: bytes) -> None:
        self.heard.put_nowait({"type": "websocket.send", "text": frame.decode()})

    def close(self, code: int, reason: str) -> None:
        self.heard.put_nowait({"type": "websocket.close", "code": code, "reason": reason})

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.heard.get(), LIMIT)

    async def text(self, acknowledges: bool = True) -> dict[str, Any]:
        event = await self.next()
        assert event["type"] == "websocket.send", event
        if acknowledges:
            await self.say(ack=True)
        found: dict[str, Any] = json.loads(event["text"])
        return found

    async def say(self, **what: Any) -> None:
        await self.said.put({"type": "websocket.receive", "text": json.dumps(what)})


@asynccontextmanager
async def open_page(feed: Feed, key: str = "k", **more: Any) -> AsyncIterator[Page]:
    page = Page(feed, key, **more)
    serving = asyncio.create_task(page.serve())
    assert (await page.next())["type"] == "websocket.accept"
    yield page
    await page.said.put({"type": "websocket.disconnect"})
    await asyncio.wait_for(serving, LIMIT)


def make_feed(
    allowed: Callable[[list[str]], set[str]] = set,
    look: Callable[[], dict[str, Any]] = dict,
    **more: Any,
) -> Feed:
    async def gather(topics: set[str]) -> dict[str, dict[str, Any]]:
        return {topic: {"topic": topic, "node": {"messages": 7}} for topic in topics}

    return Feed(gather, look, allowed, **{"every": 0.05, "look_every": 0.1, **more})


async def test_a_page_is_told_the_figures_again_and_again() -> None:
    feed = make_feed(look=lambda: {"lights": []})
    async with open_page(feed) as page:
        first, second = await page.text(), await page.text()
        assert first["node"] == {"messages": 7}
        assert first["database"] is True
        assert second["at"] > first["at"]
        assert feed.watching == 1
    assert feed.watching == 0


async def test_the_overview_has_its_lights_at_once_whatever_was_watched_before_it() -> None:
    feed = make_feed(look=lambda: {"lights": ["well"]}, look_every=3600)
    async with open_page(feed, session=uuid.uuid4()) as page:
        assert "lights" not in await page.text()
        async with open_page(feed) as overview:
            assert (await overview.text())["lights"] == ["well"]


async def test_nothing_is_gathered_while_nobody_watches() -> None:
    feed = make_feed()
    async with open_page(feed) as page:
        await page.text()
    assert feed._task is not None
    await asyncio.wait_for(feed._task, LIMIT)
    texts = feed.texts
    assert feed._task.done()
    async with open_page(feed) as page:
        await page.text()
    assert feed.texts > texts


async def test_a_page_that_does_not_read_misses_texts_and_holds_up_nobody() -> None:
    feed = make_feed()
    async with open_page(feed, patience=60.0) as frozen, open_page(feed) as well:
        for _ in range(30):
            await well.text()
        assert frozen.heard.qsize() == consumer.AHEAD
        for _ in range(consumer.AHEAD):
            await frozen.text()
        assert (await frozen.text())["missed"] > 20
        assert feed.missed > 20


async def test_a_page_that_stays_frozen_is_closed() -> None:
    feed = make_feed()
    async with open_page(feed, patience=0.2) as frozen:
        for _ in range(consumer.AHEAD):
            await frozen.text(acknowledges=False)
        event = await frozen.next()
        assert (event["type"], event["code"]) == ("websocket.close", consumer.SLOW)


async def test_a_log_out_closes_its_pages_at_once_and_no_others() -> None:
    feed = make_feed(every=30.0)
    async with open_page(feed, "mine") as mine, open_page(feed, "other") as other:
        await mine.text()
        await asyncio.to_thread(feed.end_log_in, "mine")
        event = await mine.next()
        assert (event["type"], event["code"]) == ("websocket.close", GONE)
        assert feed.watching == 1
        assert other.heard.qsize() <= 1


async def test_who_may_watch_no_longer_is_closed_within_one_look() -> None:
    taken_away: set[str] = set()
    feed = make_feed(lambda keys: set(keys) - taken_away)
    async with open_page(feed, "mine") as page:
        await page.text()
        taken_away.add("mine")
        while (event := await page.next())["type"] == "websocket.send":
            await page.say(ack=True)
        assert event["code"] == GONE


async def test_a_database_that_is_away_is_said_and_the_figures_go_on() -> None:
    faults: list[Exception] = []

    def look() -> dict[str, Any]:
        if faults:
            raise faults[0]
        return {"alarms": []}

    feed = make_feed(look=look)
    async with open_page(feed) as page:
        assert (await page.text())["database"] is True
        faults.append(DatabaseError("away"))
        while (told := await page.text())["database"]:
            assert told["node"]
        assert told["node"] == {"messages": 7}
        assert told["alarms"] == []  # as last known
        faults.clear()
        while not (await page.text())["database"]:
            pass


async def test_a_database_that_is_slow_counts_as_away_and_the_figures_do_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_feed, "LOOK_PATIENCE", 0.02)
    answers, looks = threading.Event(), itertools.count()
    answers.set()

    def look() -> dict[str, Any]:
        next(looks)
        answers.wait(LIMIT)
        return {"alarms": []}

    feed = make_feed(look=look)
    try:
        async with open_page(feed) as page:
            while not (await page.text())["database"]:
                pass
            answers.clear()
            while (await page.text())["database"]:
                pass
            before = next(looks)
            for _ in range(10):
                told = await page.text()
                assert (told["database"], told["node"]) == (False, {"messages": 7})
            assert next(looks) <= before + 2, "it is asked once at a time"
            answers.set()
            while not (await page.text())["database"]:
                pass
    finally:
        answers.set()


async def test_pages_are_ended_when_nobody_can_tell_for_long_who_may_watch(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr("msgnode.console.live.feed.UNKNOWN", 0.1)

    def away(keys: list[str]) -> set[str]:
        raise DatabaseError

    feed = make_feed(away)
    async with open_page(feed) as page:
        while (event := await page.next())["type"] == "websocket.send":
            await page.say(ack=True)
        assert event["code"] == NOT_KNOWN


async def test_fifty_pages_are_told_the_same_and_there_is_a_limit() -> None:
    feed = make_feed(most=50)
    pages = [Page(feed, str(number)) for number in range(50)]
    serving = [asyncio.create_task(page.serve()) for page in pages]
    for page in pages:
        assert (await page.next())["type"] == "websocket.accept"
        assert (await page.text())["node"] == {"messages": 7}
    assert feed.watching == 50
    late = Page(feed, "late")
    serving.append(asyncio.create_task(late.serve()))
    assert (await late.next())["type"] == "websocket.accept"
    assert (await late.next())["code"] == consumer.BUSY
    with pytest.raises(FeedFull):
        feed.join(LiveConsumer(feed, late.history))
    for page in (*pages, late):
        await page.said.put({"type": "websocket.disconnect"})
    await asyncio.wait_for(asyncio.gather(*serving), LIMIT)


async def test_the_pages_of_one_log_in_leave_room_for_those_of_others() -> None:
    feed = make_feed(every=30.0)
    pages = [Page(feed, "mine") for _ in range(MOST_OF_ONE + 5)]
    serving = []
    for number, page in enumerate(pages):  # each log-in is checked in a thread, in no order
        serving.append(asyncio.create_task(page.serve()))
        assert (await page.next())["type"] == "websocket.accept"
        if number >= MOST_OF_ONE:
            assert (await page.next())["code"] == consumer.BUSY
    async with open_page(feed, "other") as other:
        assert feed.watching == MOST_OF_ONE + 1
        assert other.heard.qsize() <= 1
    for page in pages:
        await page.said.put({"type": "websocket.disconnect"})
    await asyncio.wait_for(asyncio.gather(*serving), LIMIT)


async def test_a_worker_that_stops_lets_its_pages_go_and_takes_no_others() -> None:
    feed = make_feed(every=30.0)
    async with open_page(feed, "mine") as mine, open_page(feed, "other") as other:
        await mine.text()
        feed.close()
        for page in (mine, other):
            while (event := await page.next())["type"] == "websocket.send":
                continue
            assert event["code"] == RESTARTS
    async with open_page(feed, "late") as late:
        assert (await late.next())["code"] == consumer.BUSY
    assert feed.watching == 0


async def test_a_page_of_a_session_is_told_of_it_and_of_nothing_else() -> None:
    feed = make_feed(look=lambda: {"alarms": []})
    session = uuid.uuid4()
    async with open_page(feed, session=session) as one, open_page(feed) as overview:
        assert {(await one.text())["topic"] for _ in range(3)} == {session.hex}
        told = await one.text()
        assert "alarms" not in told
        assert (await overview.text())["topic"] == ""


async def test_charts_are_answered_and_a_database_that_is_away_says_so() -> None:
    feed = make_feed(every=30.0)
    async with open_page(feed) as page:
        await page.text()
        await page.say(length="minutes")
        told = await page.text()
        assert (told["type"], told["length"], told["points"]) == ("history", "minutes", [{"at": 1}])
        await page.say(length="away")
        assert (await page.text())["points"] is None


@pytest.mark.parametrize("text", ["{", "[]", '{"length": 5}', '{"length":"x"}', "x" * 1000])
async def test_a_page_that_talks_nonsense_is_closed(text: str) -> None:
    feed = make_feed(every=30.0)
    async with open_page(feed) as page:
        await page.text()
        await page.said.put({"type": "websocket.receive", "text": text})
        event = await page.next()
        assert (event["type"], event["code"]) == ("websocket.close", consumer.BAD)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"n:1"), (b"origin", b"http://n:1")],
        [(b"host", b"n:1"), (b"origin", b"http://evil"), (b"cookie", b"COOKIE=k")],
        [(b"host", b"n:1"), (b"cookie", b"COOKIE=k")],
        [(b"host", b"n:1"), (b"origin", b"null"), (b"cookie", b"COOKIE=k")],
    ],
)
async def test_without_log_in_or_from_elsewhere_there_is_no_socket(headers: Any) -> None:
    name = django_settings.SESSION_COOKIE_NAME.encode()
    headers = [(key, value.replace(b"COOKIE", name)) for key, value in headers]
    page = Page(make_feed())
    await page.serve(headers)
    assert await page.next() == {"type": "websocket.close", "code": 4403}


@pytest.mark.django_db
@pytest.mark.parametrize("role", [roles.VIEWER, roles.OPERATOR, roles.AUTHOR, roles.ADMINISTRATOR])
def test_each_role_may_watch_until_it_is_taken_away(client: Client, role: str) -> None:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    client.force_login(user)
    key = client.session.session_key
    assert key
    assert access.watchers_allowed([key, "unknown"]) == set()
    user.groups.add(Group.objects.get(name=role))
    assert access.watchers_allowed([key, "unknown"]) == {key}
    user.groups.clear()
    assert access.watchers_allowed([key]) == set()
    user.groups.add(Group.objects.get(name=role))
    user.set_password("another")
    user.save()
    assert access.watchers_allowed([key]) == set()


@pytest.mark.django_db
def test_a_log_out_is_told_with_its_key(client: Client) -> None:
    ended: list[str] = []
    held = access.on_log_out(ended.append)
    client.force_login(User.objects.create_user("somebody", is_staff=True))
    key = client.session.session_key
    client.post("/admin/logout/")
    assert ended == [key]
    assert held is not None

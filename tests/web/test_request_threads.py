"""HTTP requests are served in a few threads that stay: how many at a time, in which order."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from msgnode.core.faults import FAULTS
from msgnode.web import request_threads
from msgnode.web.request_threads import PART, RequestThreads
from tests.node import eventually

pytestmark = pytest.mark.django_db(transaction=True)
LIMIT = 20.0  # seconds until a test gives up


class Views:
    """An application whose requests run in their thread until they may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.threads: set[int] = set()
        self.connections: list[Any] = []
        self.may_end = threading.Event()
        self.ended = threading.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        await sync_to_async(self._view)(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def _view(self, path: str) -> None:
        self.begun.append(path)
        self.threads.add(threading.get_ident())
        connection.ensure_connection()
        self.connections.append(connection.connection)
        assert self.may_end.wait(LIMIT)
        self.ended.set()


async def ask(served: RequestThreads, path: str, source: str = "192.0.2.1") -> dict[str, Any]:
    """What is answered to a request: its status, its headers by their names, its body."""
    told: dict[str, Any] = {"body": b""}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            told.update(status=event["status"], headers=dict(event["headers"]))
        else:
            told["body"] += event["body"]

    scope = {"type": "http", "path": path, "client": (source, 1)}
    async with asyncio.timeout(LIMIT):
        await served(scope, None, send)
    return told


@pytest.fixture
async def views() -> AsyncIterator[Views]:
    made = Views()
    yield made
    made.may_end.set()


async def begun(views: Views, number: int) -> None:
    async with asyncio.timeout(LIMIT):
        while len(views.begun) < number:
            await eventually()


async def test_requests_share_few_threads_and_their_connections(views: Views) -> None:
    served = RequestThreads(views, 2)
    views.may_end.set()
    for _ in range(3):
        told = await asyncio.gather(*(ask(served, f"/{at}") for at in range(10)))
        assert {each["status"] for each in told} == {200}
    assert len(views.threads) <= 2
    assert len({id(each) for each in views.connections}) <= 2


async def test_who_waits_too_long_for_a_thread_is_told(views: Views) -> None:
    served = RequestThreads(views, 1, patience=0.05)
    first = asyncio.create_task(ask(served, "/first"))
    await begun(views, 1)
    before = FAULTS.counts[PART]
    refused = await ask(served, "/late")
    assert (refused["status"], refused["headers"][b"retry-after"]) == (503, b"5")
    assert json.loads(refused["body"])["type"] == "/problems/errors/unavailable"
    assert FAULTS.counts[PART] == before + 1
    views.may_end.set()
    assert (await first)["status"] == 200
    assert (await ask(served, "/next"))["status"] == 200


async def test_each_source_that_waits_has_one_request_in_turn(views: Views) -> None:
    served = RequestThreads(views, 1)
    asked = [asyncio.create_task(ask(served, "/first"))]
    await begun(views, 1)
    for path, source in (
        *((f"/flood/{at}", "192.0.2.1") for at in range(5)),
        ("/other", "2001:db8::1"),
        ("/its-neighbour", "2001:db8::2"),  # in the same /64
        ("/third", "192.0.2.3"),
    ):
        asked.append(asyncio.create_task(ask(served, path, source)))
        await asyncio.sleep(0)
    views.may_end.set()
    await asyncio.gather(*asked)
    assert views.begun[:5] == ["/first", "/flood/0", "/other", "/third", "/flood/1"]
    assert views.begun[5] == "/its-neighbour"


async def test_a_source_with_many_requests_that_wait_is_told_at_once(
    views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_threads, "MOST_WAITING", 2)
    served = RequestThreads(views, 1)
    asked = [asyncio.create_task(ask(served, "/first"))]
    await begun(views, 1)
    asked += [asyncio.create_task(ask(served, "/waits")) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await ask(served, "/more"))["status"] == 503
    asked.append(asyncio.create_task(ask(served, "/other", "192.0.2.9")))
    await asyncio.sleep(0)
    views.may_end.set()
    assert {each["status"] for each in await asyncio.gather(*asked)} == {200}


async def test_the_thread_of_a_request_that_was_given_up_serves_again_when_it_is_done(
    views: Views,
) -> None:
    served = RequestThreads(views, 1)
    given_up = asyncio.create_task(ask(served, "/given-up"))
    waits = asyncio.create_task(ask(served, "/gone"))
    await begun(views, 1)
    waits.cancel()
    given_up.cancel()
    await asyncio.wait({given_up, waits})
    following = asyncio.create_task(ask(served, "/next"))
    await asyncio.sleep(0.01)
    assert views.begun == ["/given-up"], "the thread is busy"
    views.may_end.set()
    assert (await following)["status"] == 200
    assert views.begun == ["/given-up", "/next"]
    assert len(views.threads) == 1

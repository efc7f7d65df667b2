"""Two whole workers in one process, on a layer in memory, one Redis and one database: what becomes
of the sessions of one that is taken for dead, and of that worker. The same with real processes and
PostgreSQL is in tests/e2e/test_frozen_worker.py."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from msgnode import models
from msgnode.node import Node
from msgnode.sessions.connection import Connection
from msgnode.workers import membership_store
from msgnode.workers.failover import Failover
from msgnode.workers.protocol import PROTOCOL
from tests.client import ALLOCATION, address, runtime
from tests.fakes import FakeLink
from tests.node import eventually

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 1.5
Start = Callable[..., Coroutine[Any, Any, Node]]


class Runtime:
    """A runtime connected to a worker, without a socket between."""

    def __init__(self, at: Node, url: str = "") -> None:
        self.url = url or runtime()
        self.link = FakeLink()
        parts = at.parts
        self.token = ""
        self._ids = itertools.count(1)
        self.connection = Connection(
            self.link, "127.0.0.1", parts.sessions, parts.pipeline.carry, parts.connection_settings
        )
        parts.sockets.add(self.connection, "127.0.0.1")

    def say(self, type_: str, to: str, body: Any = None, sender: str = "") -> int:
        id_ = next(self._ids)
        frame = {"id": id_, "type": type_, "from": sender or self.url, "to": to, "body": body or {}}
        self.connection.frame_received(json.dumps(frame).encode())
        return id_

    async def ask(self, type_: str, to: str, body: Any = None, sender: str = "") -> dict[str, Any]:
        id_ = self.say(type_, to, body, sender)
        found: list[dict[str, Any]] = []
        await until(lambda: bool(found.extend(self.answers(id_)) or found))
        return found[0]["body"]

    def answers(self, id_: int) -> list[dict[str, Any]]:
        frames = map(json.loads, self.link.frames)
        return [each for each in frames if each["type"] == "response" and each["id"] == id_]

    async def open(self) -> Runtime:
        body = await self.ask("open", "mn:/session")
        assert body["code"] == 200, body
        self.token = body["runtimeToken"]
        return self

    async def allocate(self) -> str:
        body = await self.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
        assert body["code"] == 200, body
        return body["value"]["allocated"][0]


async def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await eventually()


@pytest.fixture
async def start(
    monkeypatch: pytest.MonkeyPatch, settings: Any, redis_url: str
) -> AsyncIterator[Start]:
    settings.REDIS_URL = redis_url
    settings.NODE = {**settings.NODE, "WORKER_TIMEOUT": LEASE, "DRAIN_STAGGER": 0.0}
    settings.RECORD = {**settings.RECORD, "ON": False}
    pids = iter([os.getpid(), 1, os.getppid()])  # of processes that run
    started: list[Node] = []

    async def start(protocol: int = PROTOCOL) -> Node:
        pid = next(pids)
        monkeypatch.setattr(os, "getpid", lambda: pid)
        worker = Node()
        monkeypatch.undo()
        assert worker.parts.cluster is not None
        worker.parts.cluster.transport.protocol = protocol
        await worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if not worker.parts.lease.is_lost:
            await worker.stop()


def freeze(worker: Node) -> None:
    """Nothing of it is heard any more, and its lease runs out."""
    assert worker.parts.cluster is not None
    worker.parts.lease.renew = _never  # type: ignore[method-assign]
    for task in (*worker.parts.cluster._jobs, *worker.parts.cluster.transport._tasks):
        task.cancel()


async def _never() -> None:
    await asyncio.Event().wait()


async def test_w1_a_worker_taken_for_dead_is_fenced_and_its_sessions_live_on(start: Start) -> None:
    live, frozen = await start(), await start()
    assert live.parts.cluster is not None
    assert frozen.parts.cluster is not None
    await until(live.parts.cluster.network.knows_all)
    caught, stays = await Runtime(frozen).open(), await Runtime(live).open()
    held = await caught.allocate()
    nobody = address()
    assert (await stays.ask("create", nobody))["code"] == 404
    lost: list[str] = []
    frozen.parts.lease.on_lost.append(lost.append)
    freeze(frozen)
    assert await sync_to_async(membership_store.renew)(frozen.parts.epoch, -60.0)
    assert len(live.parts.sessions.sessions) == 1
    await until(lambda: len(live.parts.sessions.sessions) == 2)
    stays.say("create", held, {"value": "waits"})
    await until(lambda: not frozen.parts.lease.is_held)
    del frozen.parts.lease.renew  # it wakes
    caught.say("create", held, {"value": "read after the freeze"})
    id_ = caught.say("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    await until(lambda: frozen.parts.lease.is_lost)
    assert lost == ["its epoch is retired"]
    assert not caught.answers(id_)
    await frozen.fence("its epoch is retired")
    assert caught.link.closed is not None
    assert caught.link.closed[0] == 3001
    frozen.parts.session_store.closed(
        next(iter(frozen.parts.sessions.sessions.values())), "by the frozen one"
    )
    await frozen.parts.writer.stop()
    row = await models.Session.objects.aget(runtime_url=caught.url)
    assert row.epoch == live.parts.epoch
    assert row.state != models.Session.State.CLOSED
    assert await models.Allocation.objects.filter(address=held).aexists()
    assert await models.Alarm.objects.filter(kind="worker-fenced").aexists()
    again = await start()
    assert again.parts.cluster is not None
    for each in (again.parts.cluster, live.parts.cluster):
        await until(each.network.knows_all)
    back = Runtime(again, caught.url)
    token_url = f"{caught.url}/{caught.token}"
    assert await back.ask("re-open", "mn:/session", sender=token_url) == {"code": 200}
    await until(lambda: any(b'"waits"' in frame for frame in back.link.frames))
    assert any(b'"gap"' in frame for frame in back.link.frames)
    assert (await stays.ask("create", nobody))["code"] == 404


async def test_a_worker_that_has_much_to_take_at_its_start_renews_its_lease_meanwhile(
    start: Start,
) -> None:
    """Else the other worker retires it before it is there, and so again at its next start."""
    is_renewed, was_in_time = threading.Event(), []
    renew, take_left = membership_store.renew, Failover.take_left

    def renewing(epoch: str, lease: float, **figures: Any) -> bool:
        is_ours = renew(epoch, lease, **figures)
        is_renewed.set()
        return is_ours

    def taking_long(failover: Failover) -> list[models.Session]:
        was_in_time.append(is_renewed.wait(20))
        return take_left(failover)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(membership_store, "renew", renewing)
        patched.setattr(Failover, "take_left", taking_long)
        await start()
    assert was_in_time == [True]


async def test_a_session_is_not_taken_from_a_worker_that_holds_its_lease(start: Start) -> None:
    live, silent = await start(), await start()
    assert live.parts.cluster is not None
    caught = await Runtime(silent).open()
    (peer,) = live.parts.cluster.transport.peers.values()
    live.parts.cluster.transport.down(peer, "is tested")
    await live.parts.cluster.failover.take_over([], [caught.connection.session.id])
    assert not live.parts.sessions.sessions
    row = await models.Session.objects.aget(runtime_url=caught.url)
    assert row.epoch == silent.parts.epoch


async def test_a_worker_of_another_protocol_waits_for_those_before_it_and_takes_what_they_leave(
    start: Start,
) -> None:
    before = await start(PROTOCOL - 1)
    leaves = await Runtime(before).open()
    held = await leaves.allocate()
    coming = asyncio.create_task(start())
    alarms = models.Alarm.objects.filter(kind="worker-protocol")
    async with asyncio.timeout(30):
        while not await alarms.filter(text__contains=before.parts.worker).aexists():
            await eventually()
    assert (await leaves.ask("create", address()))["code"] == 404  # it takes no sessions yet
    assert not coming.done()
    await before.stop()
    after = await asyncio.wait_for(coming, 30)
    back, asks = Runtime(after, leaves.url), await Runtime(after).open()
    token_url = f"{leaves.url}/{leaves.token}"
    assert await back.ask("re-open", "mn:/session", sender=token_url) == {"code": 200}
    asks.say("create", held, {"value": "found"})
    await until(lambda: any(b'"found"' in frame for frame in back.link.frames))

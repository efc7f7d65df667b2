"""Two whole workers in one process, on a layer in memory, one Redis and one database: what becomes
of the sessions of one that is taken for dead, and of that worker. The same with real processes and
PostgreSQL is in tests/e2e/test_frozen_worker.py."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any
from unittest.mock import AsyncMock

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings

from msgnode import models
from msgnode.node import Node
from msgnode.workers import membership_store
from msgnode.workers.cluster import Cluster
from msgnode.workers.failover import Failover
from msgnode.workers.protocol import PROTOCOL, Goodbye
from msgnode.workers.worker_process import WorkerId
from tests import waiting
from tests.client import ALLOCATION, address
from tests.node import eventually
from tests.stage.worker import Runtime, Start, freeze

pytestmark = pytest.mark.django_db(transaction=True)


async def test_w1_a_worker_taken_for_dead_is_fenced_and_its_sessions_live_on(start: Start) -> None:
    live, frozen = await start(), await start()
    assert isinstance(live.parts.cluster, Cluster)
    assert isinstance(frozen.parts.cluster, Cluster)
    await waiting.so(live.parts.cluster.network.knows_all)
    caught, stays = await Runtime(frozen).open(), await Runtime(live).open()
    held = await caught.allocate()
    nobody = address()
    assert (await stays.ask("create", nobody))["code"] == 404
    lost: list[str] = []
    frozen.parts.lease.on_lost.append(lost.append)
    freeze(frozen)
    assert await sync_to_async(membership_store.renew)(frozen.parts.epoch, -60.0)
    assert len(live.parts.sessions.sessions) == 1
    await waiting.so(lambda: len(live.parts.sessions.sessions) == 2)
    stays.say("create", held, {"value": "waits"})
    await waiting.so(lambda: not frozen.parts.lease.is_held)
    del frozen.parts.lease.renew  # it wakes
    caught.say("create", held, {"value": "read after the freeze"})
    id_ = caught.say("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}})
    await waiting.so(lambda: frozen.parts.lease.is_lost)
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
    assert isinstance(again.parts.cluster, Cluster)
    for each in (again.parts.cluster, live.parts.cluster):
        await waiting.so(each.network.knows_all)
    back = Runtime(again, caught.url)
    token_url = f"{caught.url}/{caught.token}"
    assert await back.ask("re-open", "mn:/session", sender=token_url) == {"code": 200}
    await waiting.so(lambda: any(b'"waits"' in frame for frame in back.link.frames))
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


async def test_a_worker_told_to_stop_while_it_loads_leaves_what_it_took_without_a_gap(
    start: Start,
) -> None:
    first = await start()
    runtime = await Runtime(first).open()
    await first.stop()
    has_taken, goes_on = threading.Event(), threading.Event()
    take_left = Failover.take_left

    def taking(failover: Failover) -> list[models.Session]:
        rows = take_left(failover)
        has_taken.set()
        assert goes_on.wait(20)
        return rows

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Failover, "take_left", taking)
        second = Node()
        starting = asyncio.create_task(second.start())
        await waiting.so(has_taken.is_set)
        starting.cancel()
        await asyncio.wait({starting})
        ending = asyncio.create_task(second.give_up())
        await asyncio.sleep(0)
        goes_on.set()
        await ending
    row = await models.Session.objects.aget(runtime_url=runtime.url)
    assert (row.epoch, row.worker) == ("", second.parts.worker)
    assert not await models.Worker.objects.aexists()


async def test_a_session_is_not_taken_from_a_worker_that_holds_its_lease(start: Start) -> None:
    live, silent = await start(), await start()
    assert isinstance(live.parts.cluster, Cluster)
    caught = await Runtime(silent).open()
    (other,) = live.parts.cluster.transport.others.values()
    live.parts.cluster.transport.down(other, "is tested")
    await live.parts.cluster.failover.take_over([], [caught.connection.session.id])
    assert not live.parts.sessions.sessions
    row = await models.Session.objects.aget(runtime_url=caught.url)
    assert row.epoch == silent.parts.epoch


async def test_a_worker_that_says_goodbye_has_taken_leave_though_its_row_is_still_there(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    stays, leaves = await start(), await start()
    assert isinstance(stays.parts.cluster, Cluster)
    assert isinstance(leaves.parts.cluster, Cluster)
    await waiting.so(stays.parts.cluster.network.knows_all)
    await Runtime(leaves).open()
    leaves.parts.cluster.transport.tell(Goodbye())
    await waiting.so(lambda: "sessions may have missed messages" in caplog.text)
    assert "without taking leave" not in caplog.text
    assert not await models.Worker.objects.filter(epoch=leaves.parts.epoch).aexists()


async def test_a_worker_takes_what_one_that_stopped_could_not_give_away_and_tells_of_no_gap(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays, leaves = await start(), await start()
    assert isinstance(stays.parts.cluster, Cluster)
    await waiting.so(stays.parts.cluster.network.knows_all)
    runtime = await Runtime(leaves).open()
    held = await runtime.allocate()
    monkeypatch.setitem(settings.NODE, "DRAIN_SECONDS", 0.0)
    await leaves.stop()
    there = stays.parts.sessions.sessions
    await waiting.so(lambda: any(each.runtime_url == runtime.url for each in there.values()))
    (session,) = there.values()
    assert not session.outbox.has_gap
    assert stays.parts.table.owner_of(held) is session


async def test_w7_what_was_under_way_to_a_worker_that_stopped_is_a_gap_of_who_was_to_get_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that stopped has nothing waiting, and leaves the session as complete."""
    stays, leaves = await start(), await start()
    assert isinstance(stays.parts.cluster, Cluster)
    await waiting.so(stays.parts.cluster.network.knows_all)
    caught, misses_nothing = await Runtime(leaves).open(), await Runtime(leaves).open()
    held = await caught.allocate()
    says = await Runtime(stays).open()
    told = len(says.link.frames)
    says.say("create", held, {"value": "comes"})

    def comes() -> bool:
        return any(b'"comes"' in frame for frame in caught.link.frames)

    await waiting.so(lambda: comes() or len(says.link.frames) > told)
    assert comes(), says.link.frames[told:]

    async def refused(*_: Any) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(stays.parts.cluster.transport.inbox, "send", refused)
    says.say("create", held, {"value": "is under way"})
    monkeypatch.setitem(settings.NODE, "DRAIN_SECONDS", 0.0)
    await leaves.stop()
    there = stays.parts.sessions.sessions
    await waiting.so(lambda: len(there) == 3)
    has_gap = {each.runtime_url: each.outbox for each in there.values()}
    await waiting.so(lambda: has_gap[caught.url].has_gap)
    assert not has_gap[misses_nothing.url].has_gap


async def test_what_a_worker_took_that_ended_before_anybody_heard_of_it_is_taken_from_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that took what was left at its start, and then did not reach Redis."""
    live, stops = await start(), await start()
    assert isinstance(live.parts.cluster, Cluster)
    assert isinstance(stops.parts.cluster, Cluster)
    monkeypatch.setattr(stops.parts.cluster.failover, "_look", AsyncMock())  # or it takes it back
    caught = await Runtime(stops).open()
    left = WorkerId("left", str(uuid.uuid4()), "another machine", 1)
    await sync_to_async(membership_store.register)(left, 60.0)
    row = models.Session.objects.filter(runtime_url=caught.url)
    await row.aupdate(epoch=left.epoch)
    registered = live.parts.cluster.failover._others
    await waiting.so(lambda: left.epoch in registered.registered)
    await sync_to_async(membership_store.retire)(left.epoch)
    there = live.parts.sessions.sessions
    await waiting.so(lambda: any(each.runtime_url == caught.url for each in there.values()))


async def test_a_session_that_was_handed_over_is_stored_so_before_its_new_worker_has_done_that(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody takes it over if that worker ends first."""
    gives, takes = await start(), await start()
    assert isinstance(gives.parts.cluster, Cluster)
    await waiting.so(gives.parts.cluster.network.knows_all)
    runtime = await Runtime(gives).open()
    monkeypatch.setattr(takes.parts.session_store, "moved", lambda session: None)
    (other,) = gives.parts.cluster.transport.others.values()
    await gives.parts.cluster.moves._give(runtime.connection.session.id, other)
    await waiting.so(lambda: bool(takes.parts.sessions.sessions))
    row = await models.Session.objects.aget(runtime_url=runtime.url)
    assert (row.epoch, row.worker) == (takes.parts.epoch, takes.parts.worker)


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
    await waiting.so(lambda: any(b'"found"' in frame for frame in back.link.frames))

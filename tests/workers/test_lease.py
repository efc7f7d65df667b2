"""The lease of a worker: how long it counts, when it is lost, and who waits meanwhile."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from msgnode import models
from msgnode.core.pending import Pending
from msgnode.workers import lease as leases
from msgnode.workers import membership_store
from msgnode.workers.lease import Lease
from msgnode.workers.worker_process import WorkerId
from tests import waiting

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 30.0


class Clock:
    """The lease's clock, which a test may let jump: that is what a freeze looks like."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._read = leases.time.clock_gettime

    def __call__(self, _: int) -> float:
        return self._read(leases.time.CLOCK_MONOTONIC) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases.time, "clock_gettime", clock)
    return clock


@pytest.fixture
async def lease(clock: Clock) -> AsyncIterator[Lease]:
    me = WorkerId("one", str(uuid.uuid4()), "host", 1)
    lease = Lease(me.epoch, SECONDS, is_alone=False)
    lease.begin(leases.now())
    await sync_to_async(membership_store.register)(me, SECONDS)
    yield lease
    lease.close()


def refuses(lease: Lease) -> Pending | None:
    try:
        lease.check()
    except Pending as fact:
        return fact
    return None


async def retire(lease: Lease) -> None:
    await sync_to_async(membership_store.retire)(lease._epoch)


async def test_it_counts_from_before_the_renewal_and_ends_by_itself(
    lease: Lease, clock: Clock
) -> None:
    assert refuses(lease) is None
    clock.ahead = SECONDS - 5
    assert refuses(lease) is None
    await lease.renew()
    clock.ahead = 2 * SECONDS - 10
    assert refuses(lease) is None
    clock.ahead = 2 * SECONDS
    assert refuses(lease) is not None
    assert not lease.is_held
    assert not lease.is_lost  # a renewal may still succeed


async def test_after_a_freeze_what_comes_waits_for_one_renewal_and_goes_on(
    lease: Lease, clock: Clock
) -> None:
    clock.ahead = 10 * SECONDS
    going_on = asyncio.Event()
    fact = refuses(lease)
    assert fact is not None
    fact.when_known(going_on.set)
    assert not going_on.is_set()
    await asyncio.wait_for(going_on.wait(), 20)
    assert lease.is_held
    assert refuses(lease) is None


async def test_a_worker_that_was_taken_for_dead_meanwhile_has_lost_it(
    lease: Lease, clock: Clock
) -> None:
    told: list[str] = []
    lease.on_lost.append(told.append)
    await retire(lease)
    clock.ahead = 10 * SECONDS
    called: list[int] = []
    fact = refuses(lease)
    assert fact is not None
    fact.when_known(lambda: called.append(1))
    await lease.renew()
    assert lease.is_lost
    assert told == ["its epoch is retired"]
    assert not called
    assert not await sync_to_async(models.Worker.objects.exists)(), "a retired epoch came back"


async def test_a_renewal_that_was_under_way_brings_no_lost_lease_back(lease: Lease) -> None:
    under_way = asyncio.ensure_future(lease.renew())
    await asyncio.sleep(0)  # it is sent
    lease.lose("the operator ended this worker")
    await under_way
    assert lease.renewed == 1
    assert refuses(lease) is not None
    assert not lease.is_held
    assert lease.until == float("-inf")


async def test_a_renewal_that_takes_longer_than_it_is_waited_for_counts_when_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit that takes a second of a lease of three is no database that is out of reach."""
    at, is_done, sent = 100.0, threading.Event(), []

    def slow(*_: object, **__: object) -> bool:
        sent.append(at)
        return is_done.wait(30)

    monkeypatch.setattr(leases.time, "clock_gettime", lambda _: at)
    monkeypatch.setattr(leases.membership_store, "renew", slow)
    monkeypatch.setattr(leases, "_is_file", lambda: False)
    lease = Lease(str(uuid.uuid4()), 0.3, is_alone=False)
    lease.begin(at)
    try:
        at = 100.1
        await lease.renew()
        await waiting.so(lambda: bool(sent))
        at = 100.2
        await lease.renew()
        assert (lease.failed, lease.renewed, len(sent)) == (2, 0, 1), "one is under way"
        at = 100.29
        is_done.set()
        await waiting.so(lambda: lease.renewed == 1)
        assert lease.until == pytest.approx(100.4), "it counts from when it was sent"
        at = 100.35
        assert refuses(lease) is None
        await lease.renew()
        await waiting.so(lambda: lease.renewed == 2)
        assert len(sent) == 2
        assert lease.until == pytest.approx(100.65)
    finally:
        is_done.set()
        lease.close()


async def test_a_renewal_that_is_refused_late_loses_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_done, told = threading.Event(), asyncio.Event()
    monkeypatch.setattr(leases.time, "clock_gettime", lambda _: 100.1)
    monkeypatch.setattr(leases.membership_store, "renew", lambda *_, **__: not is_done.wait(30))
    lease = Lease(str(uuid.uuid4()), 0.3, is_alone=False)
    lease.on_lost.append(lambda _: told.set())
    lease.begin(100.0)
    try:
        await lease.renew()
        assert not lease.is_lost
        is_done.set()
        await asyncio.wait_for(told.wait(), 30)
        assert lease.why_lost == "its epoch is retired"
    finally:
        is_done.set()
        lease.close()


async def test_while_the_database_is_away_it_holds_to_its_end_and_no_longer(
    lease: Lease, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> bool:
        raise OperationalError("away")

    monkeypatch.setattr(leases.membership_store, "renew", away)
    monkeypatch.setattr(leases, "_is_file", lambda: False)
    clock.ahead = SECONDS - 5
    await lease.renew()
    assert lease.is_held
    assert lease.failed == 1
    clock.ahead = SECONDS
    await lease.renew()
    assert lease.is_lost


async def test_a_full_disk_ends_no_lease_while_the_row_is_there(
    lease: Lease, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(leases.membership_store, "renew", full)
    monkeypatch.setattr(leases, "_is_file", lambda: True)
    clock.ahead = SECONDS
    await lease.renew()
    assert lease.is_held
    await retire(lease)
    clock.ahead = 3 * SECONDS
    await lease.renew()
    assert lease.is_lost


async def test_others_retire_it_only_after_its_end_and_a_margin() -> None:
    me = WorkerId("one", str(uuid.uuid4()), "host", 1)
    await sync_to_async(membership_store.register)(me, SECONDS)
    assert not await sync_to_async(membership_store.retire_expired)(me.epoch, 1.0)
    await sync_to_async(membership_store.renew)(me.epoch, -0.5)
    assert not await sync_to_async(membership_store.retire_expired)(me.epoch, 30.0)
    await sync_to_async(membership_store.renew)(me.epoch, -2.0)
    assert await sync_to_async(membership_store.retire_expired)(me.epoch, 1.0)
    assert not await sync_to_async(membership_store.renew)(me.epoch, SECONDS)


@pytest.fixture
async def run(lease: Lease) -> AsyncIterator[asyncio.Event]:
    """The lease is renewed; a worker that was frozen has caught up once the event is set."""
    caught_up = asyncio.Event()

    async def catch_up() -> None:
        await caught_up.wait()

    job = asyncio.create_task(lease.run(dict, catch_up))
    for _ in range(3):  # turns of the loop until it is under way
        await asyncio.sleep(0)
    assert lease.until == lease._awake
    yield caught_up
    job.cancel()


async def test_after_a_freeze_within_the_lease_what_comes_waits_until_this_worker_has_caught_up(
    lease: Lease, clock: Clock, run: asyncio.Event
) -> None:
    clock.ahead = leases.AWAKE + 1
    assert lease.is_held
    going_on = asyncio.Event()
    fact = refuses(lease)
    assert fact is not None
    fact.when_known(going_on.set)
    await lease.renew()  # alone decides nothing
    assert not going_on.is_set()
    assert refuses(lease) is not None
    run.set()
    await asyncio.wait_for(going_on.wait(), 20)
    assert refuses(lease) is None


async def test_a_worker_that_cannot_catch_up_goes_on_after_some_time(
    lease: Lease, clock: Clock, run: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_CATCH_UP", 0.05)
    clock.ahead = leases.AWAKE + 1
    going_on = asyncio.Event()
    fact = refuses(lease)
    assert fact is not None
    fact.when_known(going_on.set)
    await asyncio.wait_for(going_on.wait(), 20)
    assert not run.is_set()
    assert refuses(lease) is None

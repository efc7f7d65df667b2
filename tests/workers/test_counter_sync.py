"""Counters common to workers: what one counts the others know soon, and no count is lost or made
up when workers come, go, or cannot reach each other."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from channels.layers import InMemoryChannelLayer

from msgnode.core.rates import Rates
from msgnode.workers import counter_sync
from tests.node import eventually
from tests.workers.cluster import Fellow, LossyLayer

KEY = ("rate.srcAddress.hour", "127.0.0.1")
HOUR = 3600


class Meeting:
    """Workers that tell each other what they count."""

    def __init__(self) -> None:
        self.layer = LossyLayer(InMemoryChannelLayer(capacity=100))
        self.secret = uuid.uuid4().hex
        self.there: list[Fellow] = []
        self._jobs: dict[str, asyncio.Task[None]] = {}

    async def come(self) -> Fellow:
        fellow = Fellow(self.layer, f"worker-{len(self._jobs)}", self.secret)
        self._jobs[fellow.transport.me.name] = asyncio.create_task(fellow.counts.run())
        await fellow.start(*self.there)
        self.there.append(fellow)
        return fellow

    async def go(self, fellow: Fellow) -> None:
        self._jobs[fellow.transport.me.name].cancel()
        self.there.remove(fellow)
        await fellow.transport.stop()

    async def all_count(self, number: int, key: tuple[str, ...] = KEY) -> None:
        async with asyncio.timeout(10):
            while {each.rates.count(key, HOUR) for each in self.there} != {number}:
                await eventually()


@pytest.fixture
async def meeting() -> AsyncIterator[Meeting]:
    meeting = Meeting()
    yield meeting
    for fellow in tuple(meeting.there):
        await meeting.go(fellow)


def note(fellow: Fellow, number: int, key: tuple[str, ...] = KEY) -> None:
    for _ in range(number):
        fellow.rates.note(key, HOUR)


async def test_each_counts_what_all_took_in(meeting: Meeting) -> None:
    one, other, third = [await meeting.come() for _ in range(3)]
    note(one, 3)
    note(other, 4)
    await meeting.all_count(7)
    note(third, 5)
    note(one, 1)
    await meeting.all_count(13)


async def test_a_worker_that_joins_knows_what_the_others_and_the_ended_have_counted(
    meeting: Meeting,
) -> None:
    one, gone = await meeting.come(), await meeting.come()
    note(one, 3)
    note(gone, 4)
    await meeting.all_count(7)
    await meeting.go(gone)
    one.transport.forget(one.transport.others[gone.transport.me.epoch])
    await meeting.come()
    await meeting.all_count(7)


async def test_a_worker_that_joins_before_another_is_known_to_have_ended_knows_its_counts(
    meeting: Meeting,
) -> None:
    stays, ends = await meeting.come(), await meeting.come()
    note(ends, 4)
    await meeting.all_count(4)
    meeting.there.remove(ends)
    await ends.transport.silence()
    assert stays.transport.others[ends.transport.me.epoch].is_up
    await meeting.come()
    await meeting.all_count(4)


async def test_apart_each_counts_by_itself_and_together_again_nothing_is_counted_twice(
    meeting: Meeting,
) -> None:
    one, other = await meeting.come(), await meeting.come()
    note(one, 2)
    note(other, 2)
    await meeting.all_count(4)
    for fellow in (one, other):
        (linked,) = fellow.transport.others.values()
        fellow.transport.down(linked, "is cut off by the test")
    note(one, 5)
    assert one.rates.count(KEY, HOUR) == 9
    await meeting.all_count(9)


async def test_more_counters_than_are_told_at_once_are_all_told(meeting: Meeting) -> None:
    one = await meeting.come()
    number_of_keys = counter_sync.MAX_PER_BATCH + 100
    keys = [("rate.srcUsername.hour", f"user {number}") for number in range(number_of_keys)]
    for key in keys:
        one.rates.note(key, HOUR)
    other = await meeting.come()
    await meeting.all_count(1, keys[-1])
    assert len(other.rates) == len(keys)


async def test_a_link_that_is_behind_gets_each_counter_once_when_it_has_room(
    meeting: Meeting,
) -> None:
    one, _ = await meeting.come(), await meeting.come()
    note(one, 1)
    await meeting.all_count(1)
    (other,) = one.transport.others.values()
    other.out.bytes += 1024 * 1024
    before = other.out.bytes
    for _ in range(3):
        note(one, 10)
        one.counts.tell()
    assert other.out.bytes == before
    other.out.bytes -= 1024 * 1024
    await meeting.all_count(31)


def test_what_waits_for_a_link_that_stays_behind_is_bounded() -> None:
    """Counters that were forgotten to make room do not pile up there."""
    out = SimpleNamespace(stream=1, has_room=False)
    there = {"e": SimpleNamespace(is_up=True, out=out)}
    transport = SimpleNamespace(others=there, handlers={})
    rates = Rates(max_keys=10)
    told = counter_sync.CounterSync(transport, {"test": rates})  # type: ignore[arg-type]
    for number in range(counter_sync.MAX_PER_BATCH * 3):
        rates.note((str(number),), HOUR)
        if number % 100 == 0:
            told.tell()
    assert len(told._unsaid["e"].counters["test"]) <= counter_sync.MAX_PER_BATCH + 20 + 100

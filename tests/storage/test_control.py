"""The control outbox: every row reaches its handler once, whatever order the ids have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from msgnode import models
from msgnode.core.faults import FAULTS
from msgnode.storage import control
from msgnode.storage.control import MESSAGE, ControlReader, post
from msgnode.storage.writer import GroupWriter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def writer() -> AsyncIterator[GroupWriter]:
    writer = GroupWriter(patience=2.0)
    yield writer
    await writer.stop()


@pytest.fixture
def seen() -> list[int]:
    return []


@pytest.fixture
def reader(writer: GroupWriter, seen: list[int]) -> ControlReader:
    def broken(payload: dict[str, Any]) -> None:
        raise ValueError(payload)

    return ControlReader(writer, {"n": lambda p: seen.append(p["n"]), "broken": broken})


async def send(kind: str, **payload: Any) -> None:
    await sync_to_async(post)(kind, **payload)


async def test_a_row_is_applied_once(reader: ControlReader, seen: list[int]) -> None:
    await send("n", n=1)
    await reader.read()
    await reader.read()
    await send("n", n=2)
    await reader.read()
    assert seen == [1, 2]


async def test_every_reader_applies_every_row(
    reader: ControlReader, writer: GroupWriter, seen: list[int]
) -> None:
    other: list[int] = []
    second = ControlReader(writer, {"n": lambda payload: other.append(payload["n"])})
    await send("n", n=1)
    await reader.read()
    await second.read()
    assert seen == other == [1]


async def test_every_reader_is_told_the_same_number_of_a_row(writer: GroupWriter) -> None:
    numbers: list[int] = []
    handlers = {"n": lambda payload: numbers.append(payload[MESSAGE])}
    readers = [ControlReader(writer, handlers) for _ in range(2)]
    await send("n", n=1)
    for reader in readers:
        await reader.read()
    (row,) = [row async for row in models.ControlMessage.objects.filter(kind="n")]
    assert numbers == [row.pk] * 2


async def test_an_unknown_kind_and_a_broken_handler_hold_up_nothing(
    reader: ControlReader, seen: list[int]
) -> None:
    before = FAULTS.counts["control message"]
    await send("unknown")
    await send("broken")
    await send("n", n=1)
    await reader.read()
    assert seen == [1]
    assert FAULTS.counts["control message"] == before + 1


async def test_what_was_before_the_start_is_not_applied(
    writer: GroupWriter, seen: list[int]
) -> None:
    old = timezone.now() - timedelta(hours=1)
    await sync_to_async(models.ControlMessage.objects.create)(
        kind="n", payload={"n": 1}, created_at=old
    )
    await ControlReader(writer, {"n": lambda payload: seen.append(payload["n"])}).read()
    assert seen == []


@pytest.mark.parametrize("hours", [-1, 1], ids=["behind", "ahead"])
async def test_a_row_posted_where_the_clock_is_wrong_is_applied(
    reader: ControlReader, seen: list[int], monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    class WrongClock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=hours)

    with monkeypatch.context() as there:
        there.setattr(timezone, "datetime", WrongClock)
        await send("n", n=1)
    await reader.read()
    assert seen == [1]


async def test_a_reader_that_was_stopped_for_long_applies_what_came_meanwhile(
    reader: ControlReader, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([10_000.0, 10_600.0, 10_600.5])
    monkeypatch.setattr(control, "_now", lambda: next(clock))
    reader = ControlReader(reader._writer, reader._handlers)
    monkeypatch.setattr(reader, "_began", 0.0)  # it has run for long
    await sync_to_async(models.ControlMessage.objects.create)(
        kind="n", payload={"n": 1}, created_at=timezone.now() - timedelta(seconds=500)
    )
    await reader.read()
    assert seen == [1]
    await sync_to_async(models.ControlMessage.objects.create)(
        kind="n", payload={"n": 2}, created_at=timezone.now() - timedelta(seconds=500)
    )
    await reader.read()
    assert seen == [1], "it looks back no further than it has to"


async def test_a_row_that_is_rolled_back_reaches_nobody(
    reader: ControlReader, seen: list[int]
) -> None:
    def change_its_mind() -> None:
        with transaction.atomic():
            post("n", n=1)
            transaction.set_rollback(True)

    await sync_to_async(change_its_mind)()
    await reader.read()
    assert seen == []


async def test_what_could_not_be_applied_is_applied_in_the_next_round(writer: GroupWriter) -> None:
    outcomes: list[Exception | None] = [OSError("away"), OSError("still away"), None]
    applied: list[dict[str, Any]] = []

    def apply(payload: dict[str, Any]) -> asyncio.Future[Any]:
        applied.append(payload)
        done = asyncio.get_running_loop().create_future()
        outcome = outcomes[len(applied) - 1]
        done.set_result(None) if outcome is None else done.set_exception(outcome)
        return done

    reader = ControlReader(writer, {"n": apply})
    await send("n", n=1)
    for _ in range(5):
        await reader.read()
    assert [each["n"] for each in applied] == [1, 1, 1]


async def test_a_round_is_over_when_what_it_has_read_has_taken_effect(writer: GroupWriter) -> None:
    effect: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    reader = ControlReader(writer, {"n": lambda payload: effect})
    await send("n", n=1)
    reading = asyncio.create_task(reader.read())
    again = asyncio.create_task(reader.read())
    await asyncio.wait([reading, again], timeout=0.3)
    assert not reading.done()
    assert not again.done(), "somebody who asks meanwhile is told too early"
    effect.set_result(None)
    await asyncio.gather(reading, again)

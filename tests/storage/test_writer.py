"""The group writer: shared commits, order, and one culprit that is refused alone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from msgnode import models
from msgnode.bus.writing import Call, Create
from msgnode.core.errors import Conflict, Forbidden, InternalFault, Unavailable
from msgnode.storage.writer import GroupWriter

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def writer() -> AsyncIterator[GroupWriter]:
    writer = GroupWriter(patience=2.0)
    yield writer
    await writer.stop()


class Gate:
    """Holds the writer's thread inside a commit, so that what comes meanwhile forms one group."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def submit(self, writer: GroupWriter) -> asyncio.Future[Any]:
        return writer.submit(Call(self._wait))

    def _wait(self) -> None:
        assert self._open.wait(20)

    def open(self) -> None:
        self._open.set()


def pool(scheme: str) -> Create:
    return Create(models.AddressPool, [{"scheme": scheme}])


def add(to: list[str], word: str) -> Call:
    return Call(lambda: to.append(word))


def refuse(error: Exception) -> Call:
    def action() -> None:
        raise error

    return Call(action)


async def in_one_group(
    writer: GroupWriter, submit: Callable[[], list[asyncio.Future[Any]]]
) -> list[Any]:
    """What becomes of submissions that wait for their commit together."""
    gate = Gate()
    first = gate.submit(writer)
    futures = submit()
    gate.open()
    await asyncio.wait_for(first, 20)
    return list(await asyncio.gather(*futures, return_exceptions=True))


async def schemes() -> list[str]:
    found = models.AddressPool.objects.order_by("id").values_list("scheme", flat=True)
    return await sync_to_async(list)(found)


async def test_what_waits_together_is_committed_together(writer: GroupWriter) -> None:
    names = [f"s{number}" for number in range(50)]
    results = await in_one_group(
        writer, lambda: [writer.submit(pool(name), result=name) for name in names]
    )
    assert results == names
    assert await schemes() == names
    commits = dict(writer.durations.cumulative())["+Inf"]
    assert commits <= 3  # the gate, and all that came meanwhile in one or two


async def test_one_culprit_is_refused_alone(writer: GroupWriter) -> None:
    await writer.submit(pool("taken"))
    results = await in_one_group(
        writer,
        lambda: [
            writer.submit(pool("a"), result="a"),
            writer.submit(pool("taken")),
            writer.submit(pool("b"), refuse(ValueError("x"))),
            writer.submit(refuse(Forbidden("no"))),
            writer.submit(pool("c"), result="c"),
        ],
    )
    assert [type(each) for each in results] == [str, Conflict, InternalFault, Forbidden, str]
    assert await schemes() == ["taken", "a", "c"]


async def test_a_submission_is_applied_whole_or_not_at_all(writer: GroupWriter) -> None:
    with pytest.raises(Conflict):
        await writer.submit(pool("a"), pool("b"), pool("a"))
    assert await schemes() == []
    await writer.submit(pool("a"), pool("b"))
    assert await schemes() == ["a", "b"]


async def test_changes_are_applied_in_the_order_they_were_submitted(writer: GroupWriter) -> None:
    order: list[str] = []

    def submit() -> list[asyncio.Future[Any]]:
        return [
            writer.submit(pool("a"), add(order, "call 1")),
            writer.submit(Call(lambda: models.AddressPool.objects.filter(scheme="a").delete())),
            writer.submit(pool("a"), add(order, "call 2")),
            writer.submit(Create(models.Alarm, [{"kind": "k", "text": "t"}]), add(order, "call 3")),
        ]

    results = await in_one_group(writer, submit)
    assert not any(isinstance(each, Exception) for each in results)
    assert order == ["call 1", "call 2", "call 3"]
    assert await schemes() == ["a"]


async def test_a_refused_future_that_nobody_awaits_is_no_fault(writer: GroupWriter) -> None:
    writer.submit(refuse(Forbidden("no")))
    assert await asyncio.wait_for(writer.submit(result="next"), 20) == "next"


async def test_stopping_commits_what_was_submitted_before() -> None:
    writer = GroupWriter()
    futures = [writer.submit(pool(f"s{number}")) for number in range(5)]
    await writer.stop()
    await asyncio.gather(*futures)
    assert len(await schemes()) == 5


async def test_a_full_disk_is_answered_at_once_and_forgotten_with_the_space(
    writer: GroupWriter,
) -> None:
    cause = sqlite3.OperationalError("database or disk is full")
    cause.sqlite_errorcode = sqlite3.SQLITE_FULL

    def full() -> None:
        raise OperationalError("database or disk is full") from cause

    async with asyncio.timeout(1.5):  # less than the patience with a database out of reach
        with pytest.raises(Unavailable):
            await writer.submit(Call(full))
    await writer.submit(pool("after"))
    assert await schemes() == ["after"]

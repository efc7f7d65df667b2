"""When a group commit is given what was submitted: at once, or held back by a busy loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
from django.db import OperationalError

from msgnode.core import database_limit
from msgnode.core.errors import Unavailable
from msgnode.storage import group_commit
from msgnode.storage.group_commit import GroupCommit

LONG = 60.0


class Groups(list[list[int]]):
    """What was committed together."""

    def commit(self, items: list[int]) -> list[int]:
        self.append(items)
        return items


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
async def commits(groups: Groups) -> AsyncIterator[GroupCommit[int]]:
    commits: GroupCommit[int] = GroupCommit("test", groups.commit, 1000)
    yield commits
    await commits.stop()


async def busy_turn() -> None:
    """A turn of the loop in which something else takes its time."""
    await asyncio.sleep(0)
    until = time.perf_counter() + 10 * group_commit._NOTHING
    while time.perf_counter() < until:
        pass


async def test_a_busy_loop_has_what_comes_in_many_turns_share_a_transaction(
    groups: Groups, commits: GroupCommit[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "HELD", LONG)
    answers = []
    for number in range(10):
        answers.append(commits.submit(number))
        await busy_turn()
    assert not groups
    assert await asyncio.gather(*answers) == list(range(10))
    assert groups == [list(range(10))]


async def test_a_loop_that_is_always_busy_holds_nothing_for_longer_than_it_may(
    groups: Groups, commits: GroupCommit[int]
) -> None:
    answer = commits.submit(1)
    async with asyncio.timeout(20):
        while not answer.done():
            await busy_turn()
    assert groups == [[1]]


async def test_a_loop_with_nothing_else_to_do_holds_nothing(
    groups: Groups, commits: GroupCommit[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "HELD", LONG)
    async with asyncio.timeout(20):
        assert await commits.submit(1) == 1
        assert await commits.submit(2) == 2
    assert groups == [[1], [2]]


async def test_what_is_held_is_committed_when_it_stops(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "_NOTHING", 0.0)
    monkeypatch.setattr(group_commit, "HELD", LONG)
    commits: GroupCommit[int] = GroupCommit("test", groups.commit, 1000)
    answers = [commits.submit(number) for number in range(3)]
    await asyncio.sleep(0)
    assert not groups
    await commits.stop()
    assert await asyncio.gather(*answers) == [0, 1, 2]
    assert groups == [[0, 1, 2]]


class Locked:
    """A database in which somebody else keeps the rows of some items locked."""

    def __init__(self, *items: int) -> None:
        self.items = set(items)
        self.limits: list[float | None] = []
        self.written: list[int] = []

    def commit(self, items: list[int]) -> list[int]:
        self.limits.append(database_limit.seconds())
        if self.items & set(items):
            raise OperationalError("locked") from psycopg.errors.LockNotAvailable("locked")
        self.written += items
        return items


async def outcomes_of(database: Locked, items: list[int], patience: float) -> list[object]:
    commits: GroupCommit[int] = GroupCommit("test", database.commit, 1000, patience=patience)
    answers = [commits.submit(item) for item in items]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    await commits.stop()
    return list(outcomes)


@pytest.mark.django_db(transaction=True)
async def test_of_a_group_only_those_are_refused_whose_rows_somebody_keeps_locked() -> None:
    database = Locked(3, 70)
    outcomes = await outcomes_of(database, list(range(100)), 8.0)
    refused = [number for number, each in enumerate(outcomes) if isinstance(each, Unavailable)]
    assert refused == [3, 70]
    assert "keeps rows of the database locked" in str(outcomes[3])
    assert database.written == [number for number in range(100) if number not in (3, 70)]
    first, *rest = database.limits
    assert first == 8.0
    assert set(rest) == {2.0}


@pytest.mark.django_db(transaction=True)
async def test_a_group_whose_rows_are_all_locked_is_refused_within_its_time() -> None:
    database = Locked(*range(100))
    outcomes = await outcomes_of(database, list(range(100)), 0.0)
    assert {type(each) for each in outcomes} == {Unavailable}
    assert len(database.limits) < 10

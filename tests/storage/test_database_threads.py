"""Calls off the event loop: connections kept while they are used, given back when not or broken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections

from msgnode.core.errors import TooMany
from msgnode.storage import database_threads
from msgnode.storage.database_threads import DatabaseThreads, in_any_thread

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 30


@pytest.fixture
def threads() -> Iterator[DatabaseThreads]:
    made = DatabaseThreads("test", 1, 2, "No room.")
    yield made
    made.stop()


def opened() -> int:
    connection.ensure_connection()
    return id(connection.connection)


def rows_of(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


async def test_a_connection_is_kept_from_one_call_to_the_next(threads: DatabaseThreads) -> None:
    first = await threads.run(opened)
    assert [await threads.run(opened) for _ in range(3)] == [first] * 3


async def test_an_idle_thread_gives_its_connection_back(
    threads: DatabaseThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_threads, "_IDLE", 0.01)
    closed = threading.Event()

    def watch() -> None:
        own: Any = connections["default"]  # this thread's
        own.ensure_connection()
        close = own._close
        own._close = lambda: (close(), closed.set())

    await threads.run(watch)
    assert await asyncio.to_thread(closed.wait, PATIENCE)


async def test_a_connection_that_had_an_error_is_not_used_again(
    threads: DatabaseThreads,
) -> None:
    kept: list[object] = []

    def fail() -> None:
        connection.ensure_connection()
        kept.append(connection.connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")

    with pytest.raises(DatabaseError, match="there_is_no_such_table"):
        await threads.run(fail)
    assert await threads.run(lambda: connection.connection) is None
    await threads.run(opened)


async def test_an_error_of_a_call_itself_costs_no_connection(threads: DatabaseThreads) -> None:
    def fail() -> None:
        raise ValueError("of the call")

    first = await threads.run(opened)
    with pytest.raises(ValueError, match="of the call"):
        await threads.run(fail)
    assert await threads.run(opened) == first


async def test_what_finds_no_room_is_refused_and_the_rest_is_answered(
    threads: DatabaseThreads,
) -> None:
    go_on = threading.Event()
    running = [asyncio.ensure_future(threads.run(lambda: go_on.wait(PATIENCE))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooMany, match="No room."):
        await threads.run(opened)
    go_on.set()
    assert await asyncio.gather(*running) == [True, True]
    assert await threads.run(opened)


async def test_stopping_cancels_what_has_not_begun_and_lets_the_rest_end(
    threads: DatabaseThreads,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def first() -> bool:
        begun.set()
        return go_on.wait(PATIENCE)

    running = asyncio.ensure_future(threads.run(first))
    waiting = asyncio.ensure_future(threads.run(opened))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    threads.stop()
    go_on.set()
    assert await running
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(RuntimeError, match="stopped"):
        await threads.run(opened)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_in_any_thread_leaves_no_connection_there(fails: bool) -> None:
    wrappers: list[Any] = []

    def look() -> str:
        connection.ensure_connection()
        wrappers.append(connections["default"])
        if fails:
            raise DatabaseError
        return "seen"

    with pytest.raises(DatabaseError) if fails else nullcontext():
        assert await in_any_thread(look) == "seen"
    assert [each.connection for each in wrappers] == [None]


async def test_a_call_in_any_thread_finds_no_connection_that_was_left_and_is_broken() -> None:
    with ThreadPoolExecutor(1) as one:
        asyncio.get_running_loop().set_default_executor(one)

        def leave() -> None:
            connection.ensure_connection()
            connection.connection.close()  # as a server does that is restarted

        await asyncio.to_thread(leave)
        assert await in_any_thread(rows_of, "SELECT 1") == [(1,)]

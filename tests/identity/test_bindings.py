"""Tokens bound to the runtimes that said them first: in memory, or in the workers' database."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from msgnode import models, tasks
from msgnode.core.errors import TooMany, Unavailable
from msgnode.core.pending import Pending
from msgnode.identity.bindings import Binding, Bindings, BindingStore
from msgnode.storage.writer import GroupWriter

ONE, OTHER = "runtime://d/one", "runtime://d/other"


def of(runtime_url: str, name: str = "token", ends: float | None = None) -> Binding:
    return Binding(name, runtime_url, runtime_url, ends or time.time() + 3600)


class Hall:
    """Which runtimes are there, as one worker knows it."""

    def __init__(self, *runtimes: str) -> None:
        self.runtimes = set(runtimes)

    def alone(self, capacity: int = 100, limit: int = 10, **more: Any) -> Bindings:
        return Bindings(self.runtimes.__contains__, capacity, limit, **more)


# --- one worker -----------------------------------------------------------------------------------


def test_who_says_a_token_first_has_it_while_it_lives() -> None:
    hall = Hall(ONE, OTHER)
    bindings = hall.alone()
    assert bindings.bind(of(ONE))[0].runtime_url == ONE
    assert bindings.bind(of(OTHER))[0].runtime_url == ONE
    bindings.runtime_ended(ONE)  # one of its sessions: it has another
    assert bindings.look("token", OTHER) is not None
    hall.runtimes.remove(ONE)
    bindings.runtime_ended(ONE)
    assert bindings.look("token", OTHER) is None
    assert bindings.bind(of(OTHER))[0].runtime_url == OTHER
    assert len(bindings) == 1


def test_a_binding_ends_with_its_token_and_lasts_as_long_as_the_longest() -> None:
    now = 1000.0
    bindings = Hall(ONE, OTHER).alone(now=lambda: now)
    bindings.bind(of(ONE, ends=1100))
    bindings.bind(of(ONE, ends=1200))
    bindings.bind(of(ONE, ends=1050))
    now = 1150.0
    assert bindings.bind(of(OTHER, ends=2000))[0].runtime_url == ONE
    now = 1200.0
    assert bindings.look("token", OTHER) is None
    assert bindings.bind(of(OTHER, ends=2000))[0].runtime_url == OTHER


def test_a_runtime_has_so_many_and_memory_holds_so_many() -> None:
    now = 1000.0
    bindings = Hall(ONE, OTHER).alone(capacity=15, limit=10, now=lambda: now)
    for number in range(10):
        bindings.bind(of(ONE, str(number), ends=1001))
    with pytest.raises(TooMany):
        bindings.bind(of(ONE, "one more", ends=3000))
    for number in range(10):
        bindings.bind(of(OTHER, f"o{number}", ends=3000))
    assert len(bindings) == 15
    now = 1002.0
    for number in range(8):
        bindings.bind(of(ONE, f"later {number}", ends=3000))
    assert len(bindings) <= 15


# --- several workers ------------------------------------------------------------------------------


class Worker(Hall):
    """A worker with a thread of its own that writes to the database all have in common."""

    def __init__(self, *runtimes: str, limit: int = 50, patience: float = 20.0) -> None:
        super().__init__(*runtimes)
        self.asked = 0
        self.writer = GroupWriter(patience=20.0)
        self._store = BindingStore(self.writer, limit)
        self.bindings = self.alone(shared=self, patience=patience)

    def settle(self, wanted: Sequence[Binding]) -> Awaitable[Any]:
        self.asked += 1
        return self._store.settle(wanted)

    def look(self, name: str) -> Awaitable[Any]:
        self.asked += 1
        return self._store.look(name)

    async def bind(self, *wanted: Binding) -> str:
        """Whose it is."""
        return (await settled(lambda: self.bindings.bind(*wanted)))[-1].value

    async def holder(self, name: str = "token", asker: str = OTHER) -> str:
        found = await settled(lambda: self.bindings.look(name, asker))
        return found.runtime_url if found is not None else ""


async def settled(attempt: Callable[[], Any]) -> Any:
    """What comes of it, asked again as often as a message is."""
    for _ in range(3):
        try:
            return attempt()
        except Pending as fact:
            known = asyncio.Event()
            fact.when_known(known.set)
            await asyncio.wait_for(known.wait(), 60)
    raise AssertionError("it is asked for again and again")


@sync_to_async
def session(runtime_url: str) -> models.Session:
    return models.Session.objects.create(id=uuid.uuid4(), runtime_url=runtime_url, token_hash="-")


@sync_to_async
def close(row: models.Session) -> None:
    row.state = models.Session.State.CLOSED
    row.closed_at = datetime.now(UTC)
    row.save()


@pytest.fixture
async def pair(transactional_db: None) -> AsyncIterator[tuple[Worker, Worker]]:
    """Two workers; each knows of both runtimes, whose sessions are in the database."""
    workers = Worker(ONE, OTHER), Worker(ONE, OTHER)
    yield workers
    for each in workers:
        await each.writer.stop()


async def test_of_two_workers_asked_in_one_instant_one_runtime_wins(
    pair: tuple[Worker, Worker],
) -> None:
    here, there = pair
    await session(ONE)
    await session(OTHER)
    for number in range(20):
        name = f"token {number}"
        first, second = await asyncio.gather(here.bind(of(ONE, name)), there.bind(of(OTHER, name)))
        assert first == second
        assert await here.holder(name) == await there.holder(name) == first


async def test_a_known_binding_asks_nobody(pair: tuple[Worker, Worker]) -> None:
    here, _ = pair
    await session(ONE)
    wanted = of(ONE)
    await here.bind(wanted)
    asked = here.asked
    for _ in range(5):
        assert here.bindings.bind(wanted)[0].value == ONE
        assert here.bindings.bind(of(OTHER))[0].value == ONE
        assert here.bindings.look("token", OTHER) is not None
    assert here.asked == asked == 1


async def test_a_session_that_moves_takes_its_bindings_along(pair: tuple[Worker, Worker]) -> None:
    here, there = pair
    await session(ONE)
    await session(OTHER)
    wanted = of(ONE)
    assert await here.bind(wanted) == ONE
    assert await there.bind(wanted) == ONE
    assert await there.bind(of(OTHER)) == ONE
    assert await here.bind(of(OTHER)) == ONE


async def test_where_a_runtime_has_left_what_was_bound_to_it_is_asked_for_anew(
    pair: tuple[Worker, Worker],
) -> None:
    """It may end at the other worker, and somebody else have its token then."""
    here, there = pair
    first = await session(ONE)
    await session(OTHER)
    assert await here.bind(of(ONE)) == ONE
    here.bindings.runtime_went(ONE)
    await close(first)
    there.runtimes.discard(ONE)
    assert await there.bind(of(OTHER)) == OTHER
    assert await here.bind(of(ONE)) == OTHER


async def test_the_database_says_who_is_there_still(pair: tuple[Worker, Worker]) -> None:
    here, there = pair
    row = await session(ONE)
    await session(OTHER)
    assert await here.bind(of(ONE)) == ONE
    there.runtimes.remove(ONE)  # it has not heard of it, or believes it has ended
    assert await there.bind(of(OTHER)) == ONE
    assert await there.holder(asker="runtime://d/third") == ONE
    await close(row)
    assert await there.holder(asker="runtime://d/fourth") == ""
    here.runtimes.remove(ONE)
    for each in pair:
        each.bindings.runtime_ended(ONE)
    assert await here.bind(of(OTHER, ends=time.time() + 60)) == OTHER
    assert await there.holder(asker=ONE) == OTHER


async def test_back_again_a_runtime_does_not_find_what_it_lost(
    pair: tuple[Worker, Worker],
) -> None:
    here, there = pair
    row = await session(ONE)
    await session(OTHER)
    await here.bind(of(ONE))
    await close(row)
    here.bindings.runtime_ended(ONE)
    there.runtimes.remove(ONE)
    assert await there.bind(of(OTHER)) == OTHER
    await session(ONE)
    assert await here.bind(of(ONE)) == OTHER


async def test_a_database_that_does_not_answer_lets_nobody_speak(transactional_db: None) -> None:
    here = Worker(ONE, OTHER, patience=0.1)
    await session(ONE)

    def silence(_: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    here.settle = here.look = silence  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await here.bind(of(ONE))
    with pytest.raises(Unavailable):
        await here.holder()
    del here.settle, here.look
    here.bindings = here.alone(shared=here, patience=20.0)
    assert await here.bind(of(ONE, "another")) == ONE
    await here.writer.stop()


async def test_rows_have_a_limit_and_an_end(transactional_db: None) -> None:
    worker = Worker(ONE, OTHER, limit=3)
    row = await session(ONE)
    await session(OTHER)
    for number in range(3):
        await worker.bind(of(ONE, str(number)))
    with pytest.raises(TooMany):
        await worker.bind(of(ONE, "4"))
    await worker.bind(of(OTHER, "over", ends=time.time() - 60))
    await worker.bind(of(OTHER, "for ever", ends=1e300))
    await close(row)
    assert (await sync_to_async(tasks.purge)())["bindings of tokens"] == 4
    names = await sync_to_async(
        lambda: list(models.IdentityBinding.objects.values_list("name", flat=True))
    )()
    assert names == ["for ever"]
    await worker.writer.stop()

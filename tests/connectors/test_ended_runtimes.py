"""Runtimes whose sessions end: looked up in groups, ended with the last session, never lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from asgiref.sync import sync_to_async

from msgnode import models
from msgnode.connectors import ended_runtimes
from msgnode.connectors.ended_runtimes import EndedRuntimes

pytestmark = pytest.mark.django_db(transaction=True)

OPEN, CLOSED = models.Session.State.OPEN, models.Session.State.CLOSED


class Registry:
    """Ends registrations; the first tries fail."""

    def __init__(self, failures: int = 0) -> None:
        self.groups: list[list[str]] = []
        self.failures = failures

    async def end(self, runtime_urls: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("out of reach")
        self.groups.append(list(runtime_urls))

    @property
    def ended(self) -> list[str]:
        return sorted(url for group in self.groups for url in group)


@asynccontextmanager
async def running(registry: Registry, after: float = 0.0) -> AsyncIterator[EndedRuntimes]:
    async def written() -> None:
        return None

    runtimes = EndedRuntimes(registry.end, written, after)
    job = asyncio.ensure_future(runtimes.run())
    yield runtimes
    job.cancel()


@sync_to_async
def store(url: str, state: str = OPEN) -> None:
    models.Session.objects.create(id=uuid.uuid4(), runtime_url=url, token_hash="h", state=state)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_only_runtimes_without_any_session_are_ended_by_either_spelling() -> None:
    registry = Registry()
    await store("runtime://d/gone", CLOSED)
    await store("runtime://d/two-tabs", CLOSED)
    await store("runtime://d/two-tabs")
    await store("hyperty-runtime://d/twin")
    async with running(registry) as runtimes:
        for name in ("two-tabs", "twin", "gone"):
            runtimes.note(f"runtime://d/{name}")
        await until(lambda: bool(registry.groups) and not runtimes)
    assert registry.ended == ["runtime://d/gone"]


async def test_a_thousand_ends_are_a_few_groups() -> None:
    registry = Registry()
    urls = sorted(f"runtime://d/{number}" for number in range(1000))
    async with running(registry) as runtimes:
        for url in urls:
            runtimes.note(url)
        await until(lambda: len(registry.ended) == len(urls))
    assert registry.ended == urls
    assert len(registry.groups) == 1000 // ended_runtimes.AT_ONCE


async def test_a_group_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_runtimes, "_TRIES_AGAIN", 0.05)
    registry = Registry(failures=2)
    async with running(registry) as runtimes:
        runtimes.note("runtime://d/1")
        await until(lambda: registry.ended == ["runtime://d/1"])


async def test_who_is_back_in_time_is_left_alone() -> None:
    registry = Registry()
    async with running(registry, after=0.3) as runtimes:
        runtimes.note("runtime://d/back")
        runtimes.note("runtime://d/gone")
        await store("runtime://d/back")
        await until(lambda: not runtimes and bool(registry.groups))
    assert registry.ended == ["runtime://d/gone"]

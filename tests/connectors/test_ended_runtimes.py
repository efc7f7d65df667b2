"""Runtimes whose sessions end: looked up in groups, ended with the last session, never lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from msgnode import models
from msgnode.bus.ports import CLOSED_BY_RUNTIME
from msgnode.connectors import domain_registry
from msgnode.connectors.domain_registry import EndedRuntimes
from registry.api import session_mark, subject_mark
from tests import waiting

pytestmark = pytest.mark.django_db(transaction=True)

OPEN, CLOSED = models.Session.State.OPEN, models.Session.State.CLOSED


class Registry:
    """Ends registrations; the first tries fail."""

    def __init__(self, failures: int = 0) -> None:
        self.groups: list[list[str]] = []
        self.present: dict[str, frozenset[str]] = {}
        self.failures = failures

    async def end(self, runtime_urls: Sequence[str], present: Mapping[str, frozenset[str]]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("out of reach")
        self.present.update(present)
        if runtime_urls:
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
def store(url: str, state: str = OPEN, **columns: Any) -> str:
    id_ = uuid.uuid4()
    models.Session.objects.create(id=id_, runtime_url=url, token_hash="h", state=state, **columns)
    return id_.hex


@sync_to_async
def store_closed(url: str, seconds_ago: float, **columns: Any) -> str:
    """A session that its runtime has closed."""
    at = timezone.now() - timedelta(seconds=seconds_ago)
    reason = {"closed_at": at, "close_reason": CLOSED_BY_RUNTIME}
    return async_to_sync(store)(url, CLOSED, **reason, **columns)


async def test_only_runtimes_without_any_session_are_ended_by_either_spelling() -> None:
    registry = Registry()
    await store("runtime://d/gone", CLOSED)
    await store("runtime://d/two-tabs", CLOSED)
    await store("runtime://d/two-tabs")
    await store("hyperty-runtime://d/twin")
    async with running(registry) as runtimes:
        for name in ("two-tabs", "twin", "gone"):
            runtimes.note(f"runtime://d/{name}")
        await waiting.so(lambda: bool(registry.groups) and not runtimes)
    assert registry.ended == ["runtime://d/gone"]


async def test_a_thousand_ends_are_a_few_groups() -> None:
    registry = Registry()
    urls = sorted(f"runtime://d/{number}" for number in range(1000))
    async with running(registry) as runtimes:
        for url in urls:
            runtimes.note(url)
        await waiting.so(lambda: len(registry.ended) == len(urls))
    assert registry.ended == urls
    assert len(registry.groups) == 1000 // domain_registry.AT_ONCE


async def test_a_group_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_registry, "_TRIES_AGAIN", 0.05)
    registry = Registry(failures=2)
    async with running(registry) as runtimes:
        runtimes.note("runtime://d/1")
        await waiting.so(lambda: registry.ended == ["runtime://d/1"])


async def test_who_is_back_in_time_is_left_alone() -> None:
    registry = Registry()
    async with running(registry, after=0.3) as runtimes:
        runtimes.note("runtime://d/back")
        runtimes.note("runtime://d/gone")
        await store("runtime://d/back")
        await waiting.so(lambda: not runtimes and bool(registry.groups))
    assert registry.ended == ["runtime://d/gone"]


async def test_an_end_that_is_due_at_once_waits_for_no_grace_of_others() -> None:
    registry = Registry()
    async with running(registry, after=3600) as runtimes:
        runtimes.note("runtime://d/closed")
        runtimes.note("runtime://d/expired", after=0.0)
        await waiting.so(lambda: bool(registry.groups))
        assert registry.ended == ["runtime://d/expired"]
        assert len(runtimes) == 1


async def test_a_close_at_another_worker_has_its_whole_grace() -> None:
    registry = Registry()
    began = monotonic()
    await store_closed("runtime://d/1", seconds_ago=3599)
    async with running(registry, after=3600) as runtimes:
        runtimes.note("runtime://d/1", after=0.0)
        await waiting.so(lambda: registry.ended == ["runtime://d/1"])
    assert monotonic() - began >= 0.9


async def test_who_is_there_is_named_by_session_and_subject() -> None:
    registry, url = Registry(), "runtime://d/1"
    tab = await store(url)
    twin = await store("hyperty-runtime://d/1", issuer="https://idp", subject="ann")
    gone = await store_closed(url, seconds_ago=3600, issuer="https://idp", subject="ben")
    async with running(registry, after=60) as runtimes:
        runtimes.note(url, after=0.0)
        await waiting.so(lambda: url in registry.present)
    marks = {session_mark(tab), session_mark(twin), subject_mark("https://idp", "ann")}
    assert registry.present[url] == marks
    assert session_mark(gone) not in marks


async def test_a_worker_that_starts_ends_what_was_closed_before() -> None:
    registry = Registry()
    await store_closed("runtime://d/before", seconds_ago=70)
    await store_closed("runtime://d/just-now", seconds_ago=0)
    await store_closed("runtime://d/long-ago", seconds_ago=3 * 3600)
    async with running(registry, after=60) as runtimes:
        await waiting.so(lambda: bool(registry.groups))
        assert registry.ended == ["runtime://d/before"]
        assert len(runtimes) == 1


async def test_a_runtime_that_closes_again_and_again_waits_once() -> None:
    runtimes = EndedRuntimes(Registry().end, asyncio.sleep, 3600)
    for _ in range(1000):
        runtimes.note("runtime://d/1")
    assert (len(runtimes), len(runtimes._queue)) == (1, 1)

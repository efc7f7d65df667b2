"""Changes of the embedded registry: committed in groups, each answered after its commit."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from msgnode.connectors import embedded_registry
from msgnode.connectors.embedded_registry import EmbeddedRegistry
from msgnode.connectors.global_registry import (
    AT_ONCE,
    Charge,
    EmbeddedGlobalRegistry,
    GlobalRegistryConnector,
)
from msgnode.connectors.registry_requests import Find, Refresh, Register
from msgnode.core.errors import BadMessage, InternalFault, NotFound, TooMany
from msgnode.storage.fence import Fenced
from registry import api, store
from registry.api import Kind, Search
from registry.models import Hyperty
from tests.registry.conftest import hyperty

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def registry() -> AsyncIterator[EmbeddedRegistry]:
    registry = EmbeddedRegistry()
    yield registry
    await registry.stop()


def register(number: int, user: str = "alice", **facts: object) -> Register:
    return Register(Kind.HYPERTY, f"hyperty://d/{number}", hyperty(**facts), user)


async def test_each_is_answered_after_its_commit_and_refused_alone(
    registry: EmbeddedRegistry,
) -> None:
    answers = [registry.carry_out(register(number), None) for number in range(50)]
    refused = registry.carry_out(register(1, user="bob"), None)
    assert {answer["code"] for answer in await asyncio.gather(*answers)} == {200}
    with pytest.raises(NotFound):
        await refused
    assert await sync_to_async(Hyperty.objects.count)() == 50


async def test_a_change_that_breaks_its_group_fails_alone(
    registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_for_two(changes: object) -> None:
        if any(change.url == "hyperty://d/2" for change in changes):
            raise RuntimeError("no room")

    for number in (1, 2):
        await registry.carry_out(register(number, status="disconnected"), None)
    monkeypatch.setattr(store, "listeners", [fail_for_two])
    answers = [
        registry.carry_out(Refresh(Kind.HYPERTY, f"hyperty://d/{number}"), None)
        for number in (1, 2)
    ]
    await answers[0]
    with pytest.raises(InternalFault):
        await answers[1]


async def test_a_queue_that_is_full_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_registry, "MAX_CHANGES", 0)
    with pytest.raises(TooMany):
        EmbeddedRegistry().carry_out(Refresh(Kind.HYPERTY, "hyperty://d/1"), None)


async def test_a_worker_without_its_lease_registers_nothing() -> None:
    told: list[int] = []

    def refuse() -> None:
        raise Fenced

    registry = EmbeddedRegistry(refuse, lambda: told.append(1))
    with pytest.raises(Fenced):
        await registry.carry_out(register(1), None)
    await registry.stop()
    assert told
    assert not await sync_to_async(Hyperty.objects.exists)()


def search(number: int) -> Find:
    return Find(Search(Kind.HYPERTY, url=f"hyperty://d/{number}"), is_single=True)


async def test_searches_by_url_that_wait_share_a_statement(
    registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await registry.carry_out(register(number), None)
    asked: list[int] = []

    def by_urls(kind: Kind, urls: list[str]) -> list[api.Entry]:
        asked.append(len(urls))
        return found(kind, urls)

    found = api.by_urls
    monkeypatch.setattr(api, "by_urls", by_urls)
    answers = await asyncio.gather(
        *(registry.carry_out(search(number), None) for number in (1, 2, 3, 1))
    )
    assert asked == [3]
    assert [answer["code"] for answer in answers] == [200, 200, 404, 200]
    assert answers[1]["value"]["hypertyID"] == "hyperty://d/2"


async def test_a_search_that_fails_fails_alone(
    registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_urls(kind: Kind, urls: list[str]) -> list[api.Entry]:
        if "hyperty://d/2" in urls:
            raise ValueError
        return []

    monkeypatch.setattr(api, "by_urls", by_urls)
    answers = [registry.carry_out(search(number), None) for number in range(5)]
    codes = [
        answer if isinstance(answer, InternalFault) else answer["code"]
        for answer in await asyncio.gather(*answers, return_exceptions=True)
    ]
    assert isinstance(codes.pop(2), InternalFault)
    assert codes == [404] * 4


@pytest.mark.parametrize(
    "url", ["hyperty://d/\x00", "hyperty://d/\x01", "hyperty://d/" + "x" * 1000]
)
async def test_what_can_be_no_url_is_searched_for_apart(
    registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setattr(api, "by_urls", lambda kind, urls: pytest.fail("in the statement of all"))
    answer = await registry.carry_out(Find(Search(Kind.HYPERTY, url=url), is_single=True), None)
    assert answer["code"] == 404


async def test_what_has_timed_out_is_not_proved(
    registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()
    proved: list[str] = []

    def put(guid: str, *_: object) -> None:
        proved.append(guid)
        entered.set()
        assert leave.wait(10)

    monkeypatch.setattr(api, "global_put", put)
    records = EmbeddedGlobalRegistry(registry)
    running = [
        asyncio.ensure_future(records.put(name, "", None, lambda: None))
        for name in ("first", "second", "late")
    ]
    await asyncio.to_thread(entered.wait, 10)
    running[2].cancel()
    await asyncio.wait(running[2:])
    leave.set()
    await asyncio.gather(*running[:2])
    records.stop()
    assert sorted(proved) == ["first", "second"]


class FakeRecords:
    """A global registry that stores nothing; one GUID is costly, one is bad."""

    def __init__(self) -> None:
        self.puts = 0

    async def put(self, guid: str, jwt: str, previous: str | None, charge: Charge) -> None:
        self.puts += 1
        if guid == "old":
            charge()
        if guid == "bad":
            raise BadMessage("It proves nothing.")


async def test_a_source_pays_for_records_before_they_are_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "GLOBAL_WRITES_PER_MINUTE", 40)
    records: Any = FakeRecords()
    connector = GlobalRegistryConnector(records, 40)

    async def codes(times: int, guid: str, source: str) -> Counter[int]:
        body = {"guid": guid, "jwt": "a.b.c"}
        answers = [await connector._answer("create", body, source) for _ in range(times)]
        return Counter(answer["code"] for answer in answers)

    assert await codes(100, "new", "one") == {200: 40, 429: 60}
    assert await codes(10, "old", "two") == {200: 2, 429: 8}
    assert await codes(10, "new", "two") == {429: 10}
    assert await codes(10, "bad", "three") == {400: 2, 429: 8}
    assert records.puts == 44
    assert await codes(1, "old", "other") == {200: 1}


async def test_a_source_has_so_many_records_proved_at_once() -> None:
    gate = asyncio.Event()

    class Slow(FakeRecords):
        async def put(self, *_: object) -> None:
            await gate.wait()

    records: Any = Slow()
    connector = GlobalRegistryConnector(records, 600)
    body = {"guid": "g", "jwt": "a.b.c"}
    asked = [
        asyncio.ensure_future(connector._answer("create", body, source))
        for source in ["one"] * (AT_ONCE + 3) + ["other"]
    ]
    refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert {each.result()["code"] for each in refused} == {429}
    gate.set()
    codes = Counter(answer["code"] for answer in await asyncio.gather(*asked))
    assert codes == {200: AT_ONCE + 1, 429: 3}
    assert (await connector._answer("create", body, "one"))["code"] == 200

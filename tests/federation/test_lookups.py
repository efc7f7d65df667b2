"""Domains that clients name: looked for a few at a time, and not again and again."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.core.errors import NodeError, NotFound
from msgnode.core.faults import FAULTS
from msgnode.federation.discovery import (
    AT_ONCE,
    MAX_REMEMBERED,
    MAX_WAITING,
    ROWS_AT_ONCE,
    Lookups,
    RowLooks,
)

pytestmark = pytest.mark.asyncio


async def test_case_4_a_domain_without_a_node_is_not_asked_again_for_a_while() -> None:
    asked: list[str] = []
    now = [0.0]

    async def look(domain: str) -> NodeError | None:
        asked.append(domain)
        return NotFound("none")

    lookups = Lookups(look, lambda: now[0])
    assert lookups.refusal("b.example").code == 503
    await _settled(lookups)
    for _ in range(3):
        assert lookups.refusal("b.example").code == 404
    assert asked == ["b.example"]
    now[0] = 301.0
    assert lookups.refusal("b.example").code == 503
    await lookups.stop()


async def test_case_79_ten_thousand_domains_cost_no_more_than_a_few() -> None:
    under_way = most = 0
    gate = asyncio.Event()

    async def look(domain: str) -> NodeError | None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        return NotFound("none")

    lookups = Lookups(look)
    for number in range(10_000):
        assert lookups.refusal(f"d{number}.example").code == 503
        if number % 1_000 == 0:
            await asyncio.sleep(0)
    assert len(lookups._tasks) == MAX_WAITING
    gate.set()
    await _settled(lookups)
    assert most <= AT_ONCE
    assert len(lookups._negative) <= MAX_REMEMBERED


async def test_a_name_that_is_no_domains_is_never_looked_for() -> None:
    async def look(domain: str) -> NodeError | None:
        raise AssertionError

    lookups = Lookups(look)
    for domain in ("localhost", "127.0.0.1", "x.internal"):
        assert lookups.refusal(domain).code == 404
    assert not lookups._tasks


async def _settled(lookups: Lookups) -> None:
    async with asyncio.timeout(30):
        await asyncio.gather(*lookups._tasks.values())


async def test_a_peer_that_keeps_the_node_waiting_keeps_no_other_peer_waiting() -> None:
    gate = asyncio.Event()
    looked: list[str] = []

    async def look(domain: str) -> None:
        looked.append(domain)
        if domain == "slow.example":
            await gate.wait()
        if domain == "bad.example":
            raise ValueError("what nobody foresaw")

    before = FAULTS.counts["discovery"]
    looks = RowLooks(look)
    for domain in ("slow.example", "slow.example", "bad.example", "good.example"):
        looks.begin(domain)
    await asyncio.sleep(0)
    assert looked == ["slow.example", "bad.example", "good.example"]
    assert FAULTS.counts["discovery"] == before + 1
    looks.begin("good.example")
    await asyncio.sleep(0)
    assert looked[3:] == ["good.example"], "it was over, and may be looked for again"
    await looks.stop()


async def test_so_many_peers_are_looked_for_at_once() -> None:
    gate = asyncio.Event()
    looked: list[int] = []

    async def look(number: int) -> None:
        looked.append(number)
        await gate.wait()

    looks = RowLooks(look)
    for number in range(ROWS_AT_ONCE + 3):
        looks.begin(number)
    await asyncio.sleep(0)
    assert len(looked) == ROWS_AT_ONCE
    gate.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(looked) == ROWS_AT_ONCE + 3
    await looks.stop()

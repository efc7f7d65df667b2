"""Domains that clients name: looked for a few at a time, and not again and again."""

from __future__ import annotations

import asyncio

import pytest

from msgnode.core.errors import NodeError, NotFound
from msgnode.federation.lookups import AT_ONCE, MAX_REMEMBERED, MAX_WAITING, Lookups

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

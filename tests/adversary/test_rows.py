"""One source that fills the database within every limit of its sessions: its rows are bounded,
others have theirs, and a restart does not forget what it holds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from tests.client import ALLOCATION, REGISTRY, SM, Client, address, code
from tests.node import Node

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("adversary")]

LIMIT, CLOSED = 400, 20
SESSIONS, BLOCK = 8, 30
OTHER_SOURCE = ("127.0.0.2", 0)


def count(node: Node, table: str, where: str = "1=1") -> int:
    reader = sqlite3.connect(node.data_dir / "node.sqlite3")
    try:
        statement = f"SELECT COUNT(*) FROM msgnode_{table} WHERE {where}"  # noqa: S608  (our own)
        return int(reader.execute(statement).fetchone()[0])
    finally:
        reader.close()


def rows(node: Node) -> int:
    return count(node, "allocation") + count(node, "subscription")


async def attack(client: Client) -> int:
    """Claim, subscribe and allocate all at once, until all is refused; what was granted."""
    granted = 0
    for _ in range(10):
        ids = [
            await client.send("subscribe", SM, {"resources": [address() for _ in range(BLOCK)]}),
            await client.send(
                "subscribe", SM, {"resources": [f"{address()}/changes" for _ in range(BLOCK)]}
            ),
            await client.send("create", ALLOCATION, {"value": {"number": BLOCK}}),
        ]
        answers = [await client.answer(id_) for id_ in ids]
        granted += BLOCK * sum(code(each) == 200 for each in answers)
        refused = [each for each in answers if code(each) != 200]
        for each in refused:
            assert code(each) == 429
            assert "MAX_ADDRESSES_PER_SOURCE" in str(each["body"])
        if len(refused) == len(ids):
            break
    return granted


async def test_what_all_sessions_of_a_source_hold_is_bounded(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(MAX_ADDRESSES_PER_SOURCE=LIMIT, GRACE_PERIOD=600)
    async with AsyncExitStack() as stack:
        attackers = [await stack.enter_async_context(node.ws()) for _ in range(SESSIONS)]
        for each in attackers:
            await each.open()
        granted = sum(await asyncio.gather(*(attack(each) for each in attackers)))
        assert LIMIT - BLOCK < granted <= LIMIT
        assert rows(node) == granted
        other = node.ws()
        await other.connect(local_addr=OTHER_SOURCE)
        stack.push_async_callback(other.hang_up)
        await other.open()
        mine = await other.ask("create", ALLOCATION, {"value": {"number": BLOCK}})
        assert code(mine) == 200, mine["body"]
    node.kill()  # what its detached sessions hold counts as before
    node.start()
    async with node.ws() as again:
        await again.open()
        assert await attack(again) == 0
    for each in attackers:
        async with node.ws() as again:
            await again.reopen(each.runtime_url, each.token)
            await again.ask("close", "mn:/session", sender=again.session_url)
    async with node.ws() as last:
        await last.open()
        assert await attack(last) > 0
    assert rows(node) <= LIMIT + BLOCK


async def test_what_all_sessions_of_a_source_register_is_bounded(
    start_node: Callable[..., Node],
) -> None:
    """What was removed counts until its session ends, because its row stays."""
    node = start_node(MAX_ADDRESSES_PER_SOURCE=10)
    async with node.ws() as one, node.ws() as two, node.ws() as elsewhere:
        await one.open()
        await two.open()
        assert [await register(one) for _ in range(5)] == [200] * 5
        assert await register(one, "hyperty://localhost/kept") == 200
        assert await register(one, "hyperty://localhost/kept") == 200  # again, as stubs do
        assert [await register(two) for _ in range(6)] == [200] * 4 + [429] * 2
        await elsewhere.hang_up()
        await elsewhere.connect(local_addr=OTHER_SOURCE)
        await elsewhere.open()
        assert await register(elsewhere) == 200
        await one.close_session()
        assert await register(two) == 200


async def register(client: Client, url: str = "") -> int:
    value = {
        "url": url or address(), "user": "user://localhost/alice", "expires": 3600,
        "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
        "resources": ["chat"], "dataSchemes": ["comm"], "status": "live",
        "runtime": client.runtime_url,
    }  # fmt: skip
    return code(await client.ask("create", REGISTRY, {"value": value}))

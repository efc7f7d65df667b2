"""A worker that is cut off from the database, or from Redis, while all processes run on. Two real
workers, each with a way of its own to a real Redis and a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.client import Client, address, code, runtime
from tests.e2e.proxy import Way
from tests.node import Node, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

LEASE = 3


@dataclass
class Scene:
    """`whole` keeps its ways; `cut` has one to Redis and one to the database that may be cut."""

    whole: Node
    cut: Node
    redis: Way
    database: Way
    stack: AsyncExitStack

    async def come(self, to: Node) -> Client:
        client = await self.stack.enter_async_context(to.ws())
        return await client.open(runtime())


@pytest.fixture
async def scene(tmp_path: Path, redis_url: str, migrated_url: str) -> AsyncIterator[Scene]:
    with ExitStack() as ways:
        redis, database = ways.enter_context(Way(redis_url)), ways.enter_context(Way(migrated_url))
        common = {"WORKERS": 2, "WORKER_TIMEOUT": LEASE}
        whole = Node(tmp_path, REDIS_URL=redis_url, DATABASE_URL=migrated_url, **common)
        cut = Node(tmp_path, REDIS_URL=redis.url, DATABASE_URL=database.url, **common)
        async with AsyncExitStack() as stack:
            try:
                await asyncio.gather(asyncio.to_thread(whole.start), asyncio.to_thread(cut.start))
                yield Scene(whole, cut, redis, database, stack)
            finally:
                whole.kill()
                cut.kill()


async def until_ready(node: Node, is_ready: bool = True) -> None:
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(node.get, "/health/ready") == 200) is not is_ready:
            await eventually()


async def test_w1_w3_cut_off_from_the_database_a_worker_ends_its_sockets_in_time(
    scene: Scene,
) -> None:
    caught = [await scene.come(scene.cut) for _ in range(5)]
    held = [(await client.allocate())[0] for client in caught]
    stays = await scene.come(scene.whole)
    scene.database.cut()
    codes = await asyncio.gather(*(client.close_code() for client in caught))
    assert set(codes) == {3001}
    assert "A worker has ended." not in scene.whole.log().partition("has lost its lease")[0]
    await until_ready(scene.cut, False)
    returned = []
    for client in caught:  # at the worker that is left, once it may have them
        back = await scene.stack.enter_async_context(scene.whole.ws())
        async with asyncio.timeout(60):
            while code(await back.reopen(client.runtime_url, client.token)) != 200:
                await eventually()
        returned.append(back)
    for client, own in zip(returned, held, strict=True):
        await stays.send("create", own, {"value": own})
        assert (await client.expect(type="create"))["body"]["value"] == own
    scene.database.mend()
    await until_ready(scene.cut)
    again = await scene.come(scene.cut)
    (late,) = await again.allocate()
    await stays.send("create", late, {"value": "both know it"})
    assert (await again.expect(type="create"))["to"] == late


async def test_w3_w4_cut_off_from_redis_a_worker_serves_its_own_and_says_503_else(
    scene: Scene,
) -> None:
    here, beside = await scene.come(scene.cut), await scene.come(scene.cut)
    (held,) = await beside.allocate()
    nobody = address()
    assert code(await here.ask("create", nobody)) == 404
    scene.redis.cut()
    await until_ready(scene.cut, False)
    assert code(await here.ask("create", nobody)) == 503
    await here.send("create", held, {"value": "goes on"})
    assert (await beside.expect(type="create"))["body"]["value"] == "goes on"
    scene.redis.mend()
    await until_ready(scene.cut)
    async with asyncio.timeout(30):  # until the workers have told each other what they missed
        while (answered := code(await here.ask("create", nobody))) != 404:
            assert answered == 503
            await eventually()
    assert "has lost its lease" not in scene.cut.log()

"""A worker that is cut off from Redis while all processes run on: two real workers, each with a way
of its own to a real Redis."""

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
    """`cut` has a way to Redis that may be cut."""

    cut: Node
    redis: Way
    stack: AsyncExitStack

    async def come(self, to: Node) -> Client:
        client = await self.stack.enter_async_context(to.ws())
        return await client.open(runtime())


@pytest.fixture
async def scene(tmp_path: Path, redis_url: str, migrated_url: str) -> AsyncIterator[Scene]:
    with ExitStack() as ways:
        redis = ways.enter_context(Way(redis_url))
        common = {"WORKERS": 2, "WORKER_TIMEOUT": LEASE, "DATABASE_URL": migrated_url}
        whole = Node(tmp_path, REDIS_URL=redis_url, **common)
        cut = Node(tmp_path, REDIS_URL=redis.url, **common)
        async with AsyncExitStack() as stack:
            try:
                await asyncio.gather(asyncio.to_thread(whole.start), asyncio.to_thread(cut.start))
                yield Scene(cut, redis, stack)
            finally:
                whole.kill()
                cut.kill()


async def until_ready(node: Node, is_ready: bool = True) -> None:
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(node.get, "/health/ready") == 200) is not is_ready:
            await eventually()


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

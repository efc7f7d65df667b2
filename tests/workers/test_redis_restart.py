"""Two workers on a real Redis that is restarted, or whose data is removed, under traffic."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.client import RedisClient
from tests import waiting
from tests.redis.servers import RedisServer
from tests.workers.cluster import Fellow

Pair = tuple[Fellow, Fellow, RedisServer]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two workers, each with connections of its own, and their Redis."""
    server = RedisServer(tmp_path)
    server.start()
    layers = [StreamChannelLayer([server.url]) for _ in range(2)]
    secret = uuid.uuid4().hex
    one, other = (Fellow(layer, name, secret) for layer, name in zip(layers, "ab", strict=True))
    try:
        await one.start()
        await other.start(one)
        yield one, other, server
        await asyncio.gather(one.transport.stop(), other.transport.stop())
    finally:
        await asyncio.gather(*(layer.close() for layer in layers))
        server.stop()


@pytest.mark.parametrize("loss", ["restarted", "emptied"])
async def test_whatever_becomes_of_redis_nothing_is_lost_in_silence(pair: Pair, loss: str) -> None:
    one, other, server = pair
    session = other.enter()
    await other.settled()
    remote = await one.know(session)
    operator = RedisClient(server.url)
    await operator.start()
    taken: list[bytes] = []

    async def say(number: int) -> None:
        for _ in range(number):
            frame = b"%d" % len(taken)
            if one.transport.others[other.transport.me.epoch].is_up:
                taken.append(frame)
                remote.deliver(frame)
            await asyncio.sleep(0.001)

    await say(50)
    if loss == "restarted":
        await operator.close()
        server.stop()
        await say(20)
        server.start()
    else:
        await operator.execute("FLUSHALL")
        await operator.close()
    await say(200)
    async with asyncio.timeout(20):
        while session.frames[-1:] != taken[-1:]:
            await asyncio.sleep(0.05)
            await say(1)
    assert session.frames == sorted(set(session.frames), key=int), "in order, and none twice"
    if session.id not in other.gaps:  # a machine that is busy may take a worker for down
        assert session.frames == taken


async def test_while_redis_is_away_an_alarm_stands_at_every_worker(pair: Pair) -> None:
    one, other, server = pair
    server.stop()
    await waiting.so(lambda: "redis-away" in one.alarms and "redis-away" in other.alarms)
    assert one.alarms.count("redis-away") == 1
    assert not one.cleared
    server.start()
    await waiting.so(lambda: "redis-away" in one.cleared and "redis-away" in other.cleared)


async def test_while_redis_is_full_an_alarm_stands_and_what_was_said_is_heard_afterwards(
    pair: Pair,
) -> None:
    one, other, server = pair
    operator = RedisClient(server.url)
    await operator.start()
    await operator.execute("CONFIG", "SET", "maxmemory", "1mb")  # less than it uses
    session = one.enter()
    other.homes.look_for([session.runtime_url])
    await waiting.so(lambda: "redis-full" in other.alarms)
    assert "redis-full" not in other.cleared
    assert session.runtime_url not in other.table.runtimes
    await operator.execute("CONFIG", "SET", "maxmemory", 0)
    await operator.close()
    await waiting.so(lambda: "redis-full" in other.cleared)
    await waiting.so(lambda: session.runtime_url in other.table.runtimes)

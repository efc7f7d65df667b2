"""Channels' layer on streams, on real servers: what it promises a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from channels.exceptions import ChannelFull

from msgnode.redis.channel_layer import TRIM_BYTES, StreamChannelLayer
from msgnode.redis.client import RedisClient
from msgnode.redis.faults import Full, Unreachable
from tests.redis.servers import RedisServer, running

Make = Callable[[str], StreamChannelLayer]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """One layer for each process there would be."""
    made: list[StreamChannelLayer] = []

    def make(url: str) -> StreamChannelLayer:
        made.append(StreamChannelLayer([url], expiry=5))
        return made[-1]

    yield make
    for layer in made:
        await layer.close()


async def test_what_is_sent_is_received_once_in_order_whatever_is_in_it(
    make: Make, redis_url: str
) -> None:
    reader, writer = make(redis_url), make(redis_url)
    channel = await reader.new_channel()
    sent = [{"number": number, "bytes": bytes(number), "text": "€"} for number in range(500)]
    await asyncio.gather(*(writer.send(channel, message) for message in sent))
    assert [await _next(reader, channel) for _ in sent] == sent


async def test_a_group_reaches_its_channels_of_all_processes_until_they_leave(
    make: Make, redis_url: str
) -> None:
    one, other = make(redis_url), make(redis_url)
    mine, theirs = await one.new_channel(), await other.new_channel()
    await one.group_add("all", mine)
    await other.group_add("all", theirs)
    await one.group_send("all", {"number": 1})
    assert await _next(one, mine) == await _next(other, theirs) == {"number": 1}
    await other.group_discard("all", theirs)
    await one.group_send("all", {"number": 2})
    await one.send(theirs, {"number": 3})
    assert await _next(one, mine) == {"number": 2}
    assert await _next(other, theirs) == {"number": 3}


async def test_what_nobody_reads_any_more_is_not_written(make: Make, redis_url: str) -> None:
    reader, writer = make(redis_url), make(redis_url)
    channel = await reader.new_channel()
    await writer.send(channel, {"number": 1})
    assert await _next(reader, channel) == {"number": 1}  # and now Redis has it wait for the next
    await reader.close()
    with pytest.raises(ChannelFull, match="Nobody reads"):
        await writer.send(channel, {})


async def test_what_was_read_is_let_go_and_nothing_else(make: Make, redis_url: str) -> None:
    layer = make(redis_url)
    channel = await layer.new_channel()
    client = RedisClient(redis_url)
    await client.start()
    for _ in range(4):
        for _ in range(10):
            await layer.send(channel, {"bytes": bytes(TRIM_BYTES // 8)})
        assert await client.execute("XLEN", f"msgnode:{channel}") >= 10
        for _ in range(10):
            await _next(layer, channel)
    assert await client.execute("XLEN", f"msgnode:{channel}") < 20
    assert 0 < await client.execute("PTTL", f"msgnode:{channel}") <= 5000
    await client.close()


async def test_what_was_read_does_not_stay_in_redis_though_nothing_follows(
    make: Make, redis_url: str
) -> None:
    layer = make(redis_url)
    channel = await layer.new_channel()
    await layer.send(channel, {"said": "in confidence"})
    await _next(layer, channel)
    client = RedisClient(redis_url)
    await client.start()
    async with asyncio.timeout(10):
        while await client.execute("XLEN", f"msgnode:{channel}"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await layer.send(channel, {"said": "later"})
    assert await _next(layer, channel) == {"said": "later"}
    await client.close()


async def test_what_was_sent_waits_while_its_reader_has_no_connection(
    make: Make, tmp_path: Path
) -> None:
    with running(tmp_path) as server:
        reader, writer = make(server.url), make(server.url)
        channel = await reader.new_channel()
        operator = RedisClient(server.url)
        await operator.start()
        await writer.send(channel, {"number": 0})
        assert await _next(reader, channel) == {"number": 0}
        listed = (await operator.execute("CLIENT", "LIST")).decode()
        for line in filter(lambda line: "name=msgnode-inbox" in line, listed.splitlines()):
            await operator.execute("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id="))
        for number in range(1, 50):
            await writer.send(channel, {"number": number})
        for number in range(1, 50):
            assert await _next(reader, channel) == {"number": number}
        await operator.close()


async def test_a_redis_that_comes_back_empty_is_made_ready_again(
    make: Make, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    try:
        reader, writer = make(server.url), make(server.url)
        channel = await reader.new_channel()
        await reader.group_add("all", channel)
        await writer.send(channel, {"number": 0})
        assert await _next(reader, channel) == {"number": 0}
        server.stop()
        with pytest.raises(Unreachable):
            await writer.send(channel, {"number": 1})
        server.start()
        await _until_taken(writer, channel, {"number": 2})
        assert await _next(reader, channel) == {"number": 2}
        async with asyncio.timeout(10):
            while True:  # its subscription comes back with its connection
                await writer.group_send("all", {"number": 3})
                try:
                    assert await asyncio.wait_for(reader.receive(channel), 0.2) == {"number": 3}
                    break
                except TimeoutError:
                    continue
    finally:
        server.stop()


async def test_a_channel_that_was_removed_is_made_again(make: Make, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        reader, writer = make(server.url), make(server.url)
        channel = await reader.new_channel()
        operator = RedisClient(server.url)
        await operator.start()
        await operator.execute("FLUSHALL")
        await _until_taken(writer, channel, {"number": 1})
        assert await _next(reader, channel) == {"number": 1}
        await operator.close()


async def test_a_full_redis_is_named_and_takes_again_once_it_has_room(
    make: Make, tmp_path: Path
) -> None:
    with running(tmp_path, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction") as server:
        layer = make(server.url)
        channel = await layer.new_channel()
        taken = 0
        with pytest.raises(Full, match="maxmemory"):
            while taken < 1000:
                await layer.send(channel, {"bytes": bytes(50_000)})
                taken += 1
        for _ in range(taken):
            await _next(layer, channel)
        await _until_taken(layer, channel, {"number": 1})
        assert await _next(layer, channel) == {"number": 1}


async def _next(layer: StreamChannelLayer, channel: str) -> dict[str, object]:
    return await asyncio.wait_for(layer.receive(channel), 10)


async def _until_taken(layer: StreamChannelLayer, channel: str, message: dict[str, object]) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await layer.send(channel, message)
                return
            except (ChannelFull, Full, Unreachable):
                await asyncio.sleep(0.05)

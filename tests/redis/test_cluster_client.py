"""The directory and the channel layer on a Redis Cluster of three masters, one of which ends."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from msgnode.redis.channel_layer import StreamChannelLayer
from msgnode.redis.client import RedisClient
from msgnode.redis.cluster_client import ClusterClient, check, client_of
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault, Unreachable, Unsuitable
from msgnode.redis.slots import Slots, owner
from tests.node import eventually, free_port
from tests.redis.servers import RedisCluster

pytestmark = pytest.mark.xdist_group("redis cluster")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
async def client(running: RedisCluster) -> AsyncIterator[ClusterClient]:
    client = client_of(running.url)
    assert isinstance(client, ClusterClient)
    await client.start()
    yield client
    await client.close()


def test_the_master_of_a_key_is_known_by_its_slot() -> None:
    slots = [Slots(0, "one", 1), Slots(5461, "two", 2), Slots(10923, "three", 3)]
    assert owner(slots, "foo") == ("three", 3)  # slot 12182
    assert owner(slots, b"bar") == ("one", 1)  # slot 5061
    assert owner(slots, "{bar}.foo") == owner(slots, "bar")


@pytest.mark.long  # six servers
async def test_every_key_is_found_at_its_master_and_many_at_once(client: ClusterClient) -> None:
    keys = [uuid.uuid4().hex for _ in range(300)]
    for key in keys:
        await client.execute("SET", key, f"of {key}")
    found = await client.execute(b"MGET", *keys, "nobody's")
    assert found == [*(f"of {key}".encode() for key in keys), None]


@pytest.mark.long  # six servers
async def test_a_cluster_that_is_named_as_one_server_is_refused_by_name(
    running: RedisCluster,
) -> None:
    port = running.servers[1].port  # the first may have ended
    with pytest.raises(Unsuitable, match=r"redis\+cluster://"):
        await RedisClient(f"redis://127.0.0.1:{port}/0").start()
    await asyncio.to_thread(check, running.url)
    with pytest.raises(Unreachable, match="cannot be asked"):
        await asyncio.to_thread(check, f"redis+cluster://127.0.0.1:{free_port()}")


@pytest.mark.long  # six servers
async def test_what_is_sent_over_a_cluster_is_received_once_in_order(running: RedisCluster) -> None:
    sender, receiver = StreamChannelLayer([running.url]), StreamChannelLayer([running.url])
    channels = [await receiver.new_channel() for _ in range(4)]
    await receiver.group_add("workers", channels[0])
    await sender.group_send("workers", {"type": "beat"})
    assert await asyncio.wait_for(receiver.receive(channels[0]), 10) == {"type": "beat"}
    for number in range(50):
        for channel in channels:
            await sender.send(channel, {"number": number})
    for channel in channels:
        for number in range(50):
            assert await asyncio.wait_for(receiver.receive(channel), 10) == {"number": number}
    await asyncio.gather(sender.close(), receiver.close())


@pytest.mark.long  # six servers
async def test_the_directory_finds_what_lies_on_all_masters(running: RedisCluster) -> None:
    directory = Directory(running.url, uuid.uuid4().hex)
    await directory.start()
    addresses = [f"hyperty://d/{number}" for number in range(100)]
    assert await directory.join(addresses, "one") == dict.fromkeys(addresses, {"one"})
    assert await directory.members(Kind.NAME, addresses) == dict.fromkeys(addresses, {"one"})
    await directory.close()


@pytest.mark.long
@pytest.mark.long  # six servers
async def test_w11_when_a_master_ends_its_replica_serves_and_all_is_entered_again(
    running: RedisCluster,
) -> None:
    directory = Directory(running.url, uuid.uuid4().hex)
    said: asyncio.Queue[None] = asyncio.Queue()
    await directory.start()
    directory.on_connected.append(lambda: said.put_nowait(None))
    await directory.keep_filled("one")
    layer = StreamChannelLayer([running.url])
    channels = [await layer.new_channel() for _ in range(6)]
    assert await directory.are_filled(["one"])
    running.servers[0].stop()
    await asyncio.wait_for(said.get(), 60)
    async with asyncio.timeout(60):
        while await _is_filled(directory) is not False:
            await eventually()
    async with asyncio.timeout(60):
        while await _is_filled(directory) is not True:
            await eventually()
            with suppress(RedisFault):
                await directory.keep_filled("one")
        for channel in channels:
            while not await _sent(layer, channel):
                await eventually()
            assert await layer.receive(channel) == {"to": channel}
    await asyncio.gather(layer.close(), directory.close())


async def _is_filled(directory: Directory) -> bool | None:
    try:
        return await directory.are_filled(["one"])
    except RedisFault:
        return None


async def _sent(layer: Any, channel: str) -> bool:
    try:
        await layer.send(channel, {"to": channel})
    except Exception:  # out of reach, or its reader has not made it again yet
        return False
    return True

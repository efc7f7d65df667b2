"""The client on real servers: what is wrong with one is named, and it comes back by itself.

REDIS_URL: what it may name, and what is said of one that cannot be read.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError

from msgnode import celery
from msgnode.redis import faults
from msgnode.redis.client import RedisClient
from msgnode.redis.connection import LARGE
from msgnode.redis.faults import Full, Unreachable, Unsuitable
from msgnode.redis.url import celery_broker, parse
from tests import waiting
from tests.node import free_port
from tests.redis.servers import RedisServer, ServerEnded, running, sentinel, with_tls

Found = TypeVar("Found")
Connect = Callable[[str], Awaitable[RedisClient]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[RedisClient] = []

    async def connect(url: str) -> RedisClient:
        client = RedisClient(url, timeout=2.0)
        clients.append(client)
        await client.start()
        return client

    yield connect
    for client in clients:
        await client.close()


async def test_commands_of_one_turn_are_answered_in_their_order(
    connect: Connect, redis_url: str
) -> None:
    client = await connect(redis_url)
    replies = [client.execute("ECHO", str(number)) for number in range(1000)]
    assert await asyncio.gather(*replies) == [b"%d" % number for number in range(1000)]


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, 40 * LARGE])
async def test_large_values_go_between_small_ones_as_they_are(
    connect: Connect, redis_url: str, size: int
) -> None:
    client = await connect(redis_url)
    texts = [b"before", bytes(range(256)) * (size // 256) + b"\r\n" * (size % 256 // 2), b"after"]
    texts[1] = texts[1].ljust(size, b"$")
    assert await asyncio.gather(*(client.execute("ECHO", each) for each in texts)) == texts


async def test_a_reply_that_nobody_waits_for_any_more_is_passed_over(
    connect: Connect, redis_url: str
) -> None:
    client = await connect(redis_url)
    first, second = client.execute("ECHO", "1"), client.execute("ECHO", "2")
    first.cancel()
    assert await second == b"2"


async def test_nobody_listening_is_named_within_five_seconds(connect: Connect) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable, match="Redis cannot be reached"):
        await connect(f"redis://127.0.0.1:{free_port()}/0")
    assert time.monotonic() - began < 5


async def test_a_server_that_says_nothing_is_named_in_time(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(Unreachable, match="does not answer"):
            await asyncio.wait_for(connect(f"redis://127.0.0.1:{port}/0"), 10)


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (b"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n", "before 6.0"),
        (b"-NOPROTO unsupported protocol version\r\n", "RESP3"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak as a Redis does"),
    ],
)
async def test_what_is_no_redis_or_too_old_a_one_is_named(
    connect: Connect, said: bytes, match: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await reader.read()
        writer.close()  # Python 3.12 ends no server that has connections

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(faults.RedisFault, match=match):
            await connect(f"redis://127.0.0.1:{port}/0")


def test_versions_and_policies_that_will_not_do_are_named() -> None:
    faults.check_server("6.2.5", "standalone", "allkeys-lru", 0)
    faults.check_server("7.0.15", "standalone", "noeviction", 1024)
    with pytest.raises(Unsuitable, match="6.2 or newer"):
        faults.check_server("6.0.16", "standalone", "noeviction", 0)
    with pytest.raises(Unsuitable, match="set it to noeviction"):
        faults.check_server("7.0.15", "standalone", "volatile-ttl", 1024)
    with pytest.raises(Unsuitable, match="Cluster"):
        faults.check_server("7.0.15", "cluster", "noeviction", 0)


async def test_a_password_is_asked_for_and_a_wrong_one_is_named(
    connect: Connect, tmp_path: Path
) -> None:
    rule = "on >word ~msgnode:* resetchannels &msgnode:* +@all -@dangerous +info"
    users = ("--user", "node", *rule.split())
    with running(tmp_path, "--requirepass", "secret", *users, password="secret") as server:
        at = f"127.0.0.1:{server.port}/0"
        assert await (await connect(f"redis://:secret@{at}")).execute("PING") == b"PONG"
        assert await (await connect(f"redis://node:word@{at}")).execute("PING") == b"PONG"
        with pytest.raises(Unsuitable, match="asks for a password"):
            await connect(f"redis://{at}")
        with pytest.raises(Unsuitable, match="refuses the name or the password"):
            await connect(f"redis://:wrong@{at}")
        with pytest.raises(Unsuitable, match="may not do what the node needs"):
            await (await connect(f"redis://node:word@{at}")).execute("GET", "others")


async def test_over_tls_a_server_is_known_by_its_authority(
    connect: Connect, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        try:
            url = stack.enter_context(with_tls(tmp_path))
        except ServerEnded:
            pytest.skip("this Redis was built without TLS")
        bare = url.partition("?")[0]
        client = await connect(url)
        assert await client.execute("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000
        assert await (await connect(f"{bare}?ssl_cert_reqs=none")).execute("PING") == b"PONG"
        with pytest.raises(Unreachable, match="certificate"):
            await connect(bare)
        with pytest.raises(Unsuitable, match="cannot be read"):
            await connect(f"{bare}?ssl_ca_certs={tmp_path / 'nothing'}")


async def test_a_server_that_throws_keys_away_is_refused_and_a_full_one_named(
    connect: Connect, tmp_path: Path
) -> None:
    with running(tmp_path, "--maxmemory", "3mb") as server:
        client = await connect(server.url)
        await client.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(Unsuitable, match="noeviction"):
            await connect(server.url)
        await client.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
        with pytest.raises(Full, match="maxmemory"):
            for number in range(100):
                await client.execute("SET", f"key {number}", b"x" * 100_000)


async def test_after_a_restart_it_is_there_again_and_knows_that_the_server_is_another(
    connect: Connect, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    try:
        client = await connect(server.url)
        said: asyncio.Queue[bool] = asyncio.Queue()
        client.on_connected.append(said.put_nowait)
        late = client.execute("BLPOP", "nothing", 0)
        server.stop()
        with pytest.raises(Unreachable):
            await late
        with pytest.raises(Unreachable, match="out of reach"):
            client.execute("PING")
        server.start()
        assert await asyncio.wait_for(said.get(), 10)
        assert await client.execute("PING") == b"PONG"
        other = await connect(server.url)
        name = await client.execute("CLIENT", "ID")
        await other.execute("CLIENT", "KILL", "ID", name)
        assert not await asyncio.wait_for(said.get(), 10), "the same server"
    finally:
        server.stop()


async def test_a_frozen_server_ends_every_wait(connect: Connect, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = RedisClient(server.url, timeout=0.5)
        await client.start()
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unreachable, match="no answer"):
                await asyncio.wait_for(client.execute("PING"), 10)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
            await client.close()


@pytest.mark.long
async def test_the_master_that_sentinels_name_is_found_and_the_next_one_after_its_end(
    connect: Connect, tmp_path: Path
) -> None:
    first, second = RedisServer(tmp_path), RedisServer(tmp_path)
    try:
        first.start()
        second.start()
        follower, leader = await connect(second.url), await connect(first.url)
        await follower.execute("REPLICAOF", "127.0.0.1", first.port)
        await _patiently(lambda: _has_a_replica(leader))  # before a sentinel asks it for them
        with sentinel(tmp_path, first.port) as port:
            url = f"redis+sentinel://127.0.0.1:{port}/nodes/0"
            client = await _patiently(lambda: connect(url))
            said: asyncio.Queue[bool] = asyncio.Queue()
            client.on_connected.append(said.put_nowait)
            with redis.Redis(port=port) as watcher:
                await asyncio.to_thread(waiting.until, lambda: watcher.sentinel_slaves("nodes"), 20)
            first.stop()
            assert await asyncio.wait_for(said.get(), 30), "another server than before"
            (info,) = [await client.execute("INFO", "server")]
            assert f"tcp_port:{second.port}".encode() in info
    finally:
        first.stop()
        second.stop()


async def _has_a_replica(client: RedisClient) -> None:
    if b"connected_slaves:1" not in await client.execute("INFO", "replication"):
        raise Unreachable("no replica yet")


async def _patiently(attempt: Callable[[], Awaitable[Found]]) -> Found:
    async with asyncio.timeout(20):
        while True:
            try:
                return await attempt()
            except Unreachable:
                await asyncio.sleep(0.1)
    raise AssertionError


def test_a_server_is_named_with_login_and_database() -> None:
    url = parse("redis://node:p%40ss@example.org:6380/2")
    assert (url.host, url.port, url.database) == ("example.org", 6380, 2)
    assert (url.username, url.password, url.tls, url.sentinels) == ("node", "p@ss", None, ())


def test_what_is_not_named_is_as_redis_has_it() -> None:
    url = parse("redis://example.org")
    assert (url.port, url.database, url.username, url.password) == (6379, 0, "", "")
    assert parse("unix:///run/redis.sock").path == "/run/redis.sock"


def test_tls_is_asked_for_with_options_named_as_others_name_them() -> None:
    url = parse("rediss://example.org?ssl_cert_reqs=none")
    assert url.tls == {"ssl_cert_reqs": "none"}


def test_sentinels_are_named_with_the_service() -> None:
    url = parse("redis+sentinel://:secret@one:26380,two/mymaster/1")
    assert url.sentinels == (("one", 26380), ("two", 26379))
    assert (url.service, url.database, url.password) == ("mymaster", 1, "secret")


def test_servers_of_a_cluster_are_named() -> None:
    url = parse("rediss+cluster://node:secret@one:7000,two/?ssl_cert_reqs=none")
    assert url.is_cluster
    assert url.seeds == (("one", 7000), ("two", 6379))
    assert (url.username, url.password, url.tls) == ("node", "secret", {"ssl_cert_reqs": "none"})


def test_celery_is_told_of_the_same_redis_in_its_own_words() -> None:
    assert celery_broker("redis://one:1/0") == ("redis://one:1/0", {})
    broker, options = celery_broker("redis+sentinel://:secret@one:26380,two/mymaster/1")
    assert broker == "sentinel://:secret@one:26380/1;sentinel://:secret@two:26379/1"
    assert options == {"master_name": "mymaster"}


def test_who_sends_a_task_waits_only_so_long_for_a_redis_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(celery, "BROKER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, Celery(set_as_current=False) as app:
        app.conf.update(celery.of_redis(f"redis://127.0.0.1:{silent.getsockname()[1]}/0"))
        with pytest.raises(OperationalError, match="Timeout"):
            app.send_task("any", retry=False)


@pytest.mark.parametrize(
    "url",
    ["", "redis+cluster://", "redis+cluster://one/1", "localhost:6379", "http://one",
     "redis://one:port/0", "redis+sentinel://one", "redis+sentinel:///mymaster", "redis+sentinel://one/mymaster/none"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(Unsuitable, match="REDIS_URL cannot be read"):
        parse(url)

"""Two workers over each kind of Redis that REDIS_URL may name; what is said of one that is wrong.

What the client does with each kind is in tests/redis.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from tests.client import address, code
from tests.e2e.pair import Pair
from tests.e2e.proxy import Way
from tests.node import Node, eventually, free_port
from tests.redis.servers import RedisCluster, RedisServer, ServerEnded, running, sentinel, with_tls

pytestmark = pytest.mark.long

KINDS = ("password", "tls", "sentinel", "cluster")


def url_of(kind: str, place: Path, stack: ExitStack) -> str:
    """The REDIS_URL of a server of this kind, which runs as long as the stack lives."""
    if kind == "password":
        options = ("--requirepass", "a:word")
        server = stack.enter_context(running(place, *options, password="a:word"))
        return f"redis://:a%3Aword@127.0.0.1:{server.port}/3"
    if kind == "tls":
        try:
            return stack.enter_context(with_tls(place))
        except ServerEnded:
            pytest.skip("this Redis was built without TLS")
    if kind == "sentinel":
        server = stack.enter_context(running(place))
        port = stack.enter_context(sentinel(place, server.port))
        return f"redis+sentinel://127.0.0.1:{port}/nodes/0"
    cluster = RedisCluster(place)
    stack.callback(cluster.stop)
    cluster.start()
    return cluster.url


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> Iterator[Pair]:
    shutil.copy(template, tmp_path / "node.sqlite3")
    with ExitStack() as stack:
        url = url_of(request.param, tmp_path, stack)
        tasks = {"CELERY_BROKER_URL": "redis://127.0.0.1/0"} if "cluster" in url else {}
        workers = Pair(tmp_path, REDIS_URL=url, **tasks)
        try:
            workers.start()
            yield workers
        finally:
            workers.kill()


async def test_two_workers_are_one_node_over_every_kind_of_redis(pair: Pair) -> None:
    here, there = await pair.come(pair.one), await pair.come(pair.other)
    for _ in range(10):
        (held,) = await here.allocate()
        await there.send("create", held, {"value": held})
        assert (await here.expect(type="create"))["to"] == held
        heard = f"{address('comm')}/changes"
        assert code(await here.subscribe(heard)) == 200
        await there.send("update", heard, {"value": 3}, sender=heard.removesuffix("/changes"))
        assert (await here.expect(type="update"))["to"] == heard
    async with asyncio.timeout(30):
        while (answer := code(await there.ask("create", address()))) != 404:
            assert answer == 503  # not known just now: the machine is busy
            await eventually()
    await here.hang_up()
    back = await pair.back(pair.other, here)
    await there.send("create", held, {"value": "moved"})
    assert (await back.expect(type="create"))["to"] == held
    await pair.leave()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nobody listens", "Redis cannot be reached"),
        ("password", "refuses the name or the password of REDIS_URL"),
        ("is 6.0", "names Redis 6.0."),
    ],
)
def test_a_worker_that_is_started_on_a_redis_that_will_not_do_names_it(
    tmp_path: Path, template: Path, wrong: str, said: str
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    options = {
        "password": ("--requirepass", "secret"),
        "is 6.0": (),
    }.get(wrong)
    login = ":wrong@" if wrong == "password" else ""
    server = RedisServer(tmp_path, *(options or ()))
    port = free_port() if options is None else server.port
    url = f"redis://{login}127.0.0.1:{port}/0"
    with ExitStack() as stack:
        stack.callback(server.stop)
        if options is not None:
            server.start("secret" if "password" in wrong else "")
        if wrong == "is 6.0":
            url = stack.enter_context(Way(url, older(port))).url
        node = Node(tmp_path, WORKERS=2, REDIS_URL=url)
        stack.callback(node.kill)
        with pytest.raises(AssertionError, match="the node ended"):
            node.start()
        assert node.status() != 0
        assert said in node.log()


def older(port: int) -> tuple[bytes, bytes]:
    """The version of a server, and one before 6.2 that is as long."""
    with redis.Redis(port=port) as client:
        version = client.info("server")["redis_version"].encode()
    return version, b"6.0.16"[: len(version)].ljust(len(version), b"6")

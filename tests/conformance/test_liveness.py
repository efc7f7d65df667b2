"""A newcomer that is refused only because of somebody's socket: that socket is asked at once.

Peers are processes of their own, so that they can be frozen as a machine that sleeps is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.client import LIMIT, SESSION, code, runtime
from tests.e2e.pair import OwnRedis, Pair
from tests.node import ROOT, Node

BOTH = pytest.mark.parametrize("handshake", ["ws", pytest.param("stub", marks=pytest.mark.long)])
PROGRAM = """
import asyncio, sys
from tests.client import Client

async def main(port, handshake, *urls):
    for url in urls:
        if handshake == "stub":
            client = await Client(f"ws://127.0.0.1:{port}/stub/connect", url).connect()
            client.runtime_url = url
        else:
            client = await (await Client(f"ws://127.0.0.1:{port}/ws").connect()).open(url)
        await client.allocate()
        print("open", client.token, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


class Peer:
    """A process with a socket for each of its runtime URLs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


Start = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts peers: `await start(node, "ws", url, url)`; killed at the end."""
    started: list[asyncio.subprocess.Process] = []

    async def begin(node: Node, handshake: str, *urls: str) -> Peer:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(node.port), handshake, *urls,
            cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        for _ in urls:
            async with asyncio.timeout(LIMIT * 2):
                assert (await process.stdout.readline()).startswith(b"open")
        return Peer(process)

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("handshake", "resume"),
    [("ws", "when-idle"), pytest.param("stub", "with-proof", marks=pytest.mark.long)],
)
async def test_a_newcomer_takes_the_place_of_a_frozen_socket_and_never_that_of_a_live_one(
    start_node: Callable[..., Node], start: Start, handshake: str, resume: str
) -> None:
    alone = start_node(SHARE_RUNTIME_URL="false", RESUME=resume)
    url = runtime()
    owner = await start(alone, "ws", url)
    for _ in range(3):
        if handshake == "ws":
            async with alone.ws() as stranger:
                assert code(await stranger.ask("open", SESSION, sender=url)) == 403
        else:
            async with alone.stub(url) as stranger:
                assert await stranger.close_code() == 4403
    owner.freeze()
    async with alone.ws() if handshake == "ws" else alone.stub(url) as newcomer:
        if handshake == "ws":
            await newcomer.open(url)
        else:
            newcomer.runtime_url = url
        assert len(await newcomer.allocate()) == 1
        async with alone.ws() as another:  # the newcomer is the live owner now
            assert code(await another.ask("open", SESSION, sender=url)) == 403
        assert len(await newcomer.allocate()) == 1


@pytest.mark.long
async def test_many_newcomers_at_once_ask_one_socket_and_one_of_them_is_served(
    start_node: Callable[..., Node], start: Start
) -> None:
    alone = start_node(SHARE_RUNTIME_URL="false", RESUME="with-proof")
    url = runtime()
    owner = await start(alone, "ws", url)
    owner.freeze()
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(alone.ws()) for _ in range(8)]
        answers = [each.ask("open", SESSION, sender=url) for each in clients]
        codes = [code(each) for each in await asyncio.gather(*answers)]
        assert sorted(codes) == [200] + [403] * 7


@BOTH
@pytest.mark.long
async def test_where_all_sockets_of_a_runtime_have_died_the_next_open_finds_room(
    start_node: Callable[..., Node], start: Start, handshake: str
) -> None:
    narrow = start_node(MAX_SESSIONS_PER_RUNTIME=3, RESUME="with-proof")
    url = runtime()
    dead = await start(narrow, handshake, url, url)
    alive = await start(narrow, handshake, url)
    async with narrow.ws() as late:
        assert code(await late.ask("open", SESSION, sender=url)) == 429
    async with narrow.stub() as late:
        await late.send_raw(json.dumps({"cmd": "connect", "data": {"runtimeURL": url}}))
        assert (await late.receive())["response"] == 429
    dead.freeze()
    async with narrow.ws() if handshake == "ws" else narrow.stub(url) as late:
        if handshake == "ws":
            await late.open(url)
        late.runtime_url = url
        assert len(await late.allocate()) == 1
    assert alive.process.returncode is None


@pytest.mark.long
async def test_who_is_thawed_is_served_again(start_node: Callable[..., Node], start: Start) -> None:
    alone = start_node(SHARE_RUNTIME_URL="false", RESUME="with-proof")
    url = runtime()
    async with alone.ws() as before:
        await before.open(url)
        token, (held,) = before.token, await before.allocate()
        await before.hang_up()
    owner = await start(alone, "ws", url)
    owner.freeze()
    async with alone.ws() as newcomer, alone.ws() as talker, alone.ws() as again:
        await newcomer.open(url)
        owner.thaw()
        await talker.open()
        assert code(await again.reopen(url, token)) == 200
        await talker.send("create", held, {"value": 1})
        assert (await again.expect(to=held))["body"]["value"] == 1


@pytest.mark.long
async def test_a_socket_at_another_worker_is_asked_there(
    tmp_path: Path, template: Path, start: Start
) -> None:
    shutil.copy(template, tmp_path / "node.sqlite3")
    redis = OwnRedis(tmp_path)
    pair = Pair(tmp_path, REDIS_URL=redis.url, SHARE_RUNTIME_URL="false", RESUME="when-idle")
    try:
        redis.start()
        pair.start()
        url = runtime()
        owner = await start(pair.one, "ws", url)
        async with pair.other.ws() as stranger:
            assert code(await stranger.ask("open", SESSION, sender=url)) == 403
        owner.freeze()
        async with pair.other.stub() as newcomer:
            await newcomer.send_raw(json.dumps({"cmd": "connect", "data": {"runtimeURL": url}}))
            assert (await newcomer.receive())["response"] == 200
            newcomer.runtime_url = url
            assert len(await newcomer.allocate()) == 1
            async with pair.one.ws() as another:
                assert code(await another.ask("open", SESSION, sender=url)) == 403
    finally:
        pair.kill()
        redis.stop()

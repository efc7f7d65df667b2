"""A worker that is stopped for longer than its lease, and comes back: what its sockets, its
sessions and the other worker see. Two real workers, a real Redis and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from websockets.exceptions import ConnectionClosed

from tests.client import code
from tests.e2e.pair import Pair
from tests.node import Node, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LEASE = 3.0


@pytest.fixture
async def pair(tmp_path: Path, redis_url: str, postgres_url: str) -> AsyncIterator[Pair]:
    name = f"frozen{time.monotonic_ns()}"
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    url = postgres_url.rpartition("/")[0] + f"/{name}"
    both = Pair(tmp_path, REDIS_URL=redis_url, DATABASE_URL=url)
    both.one.migrate()
    try:
        both.start()
        yield both
        await both.leave()
    finally:
        both.kill()
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def ready_again(node: Node) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(node.get, "/health/ready") != 200:
            await eventually()


async def test_frozen_for_less_than_its_lease_nothing_happens(pair: Pair) -> None:
    live, frozen = pair.one, pair.other
    here, there = await pair.come(live), await pair.come(frozen)
    (held,) = await there.allocate()
    os.kill(frozen.pid, signal.SIGSTOP)
    await here.send("create", held, {"value": "waits"})
    await asyncio.sleep(LEASE / 3)  # the freeze itself
    os.kill(frozen.pid, signal.SIGCONT)
    assert (await there.expect(type="create"))["body"]["value"] == "waits"
    assert await there.allocate()
    assert "has lost its lease" not in frozen.log()


async def test_w2_a_worker_whose_row_is_gone_is_fenced_at_its_next_write(pair: Pair) -> None:
    client = await pair.come(pair.other)
    await asyncio.to_thread(pair.one.manage, "shell", "-c", _RETIRE.format(pid=pair.other.pid))
    answer: Any = None
    try:
        while True:
            answer = await client.receive()
            await client.allocate()
    except ConnectionClosed:
        assert client.socket.close_code == 3001
    assert answer is None or code(answer) == 503
    await ready_again(pair.other)
    again = await pair.back(pair.other, client)
    assert await again.allocate()


_RETIRE = "from msgnode.models import Worker; Worker.objects.filter(pid={pid}).delete()"

"""A worker that is stopped for longer than its lease, and comes back: what its sockets, its
sessions and the other worker see. Two real workers, a real Redis and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from websockets.exceptions import ConnectionClosed

from tests.client import address, code
from tests.e2e.pair import Pair
from tests.node import Node, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

log = logging.getLogger(__name__)

FROZEN = 12.0


@pytest.fixture
async def pair(tmp_path: Path, redis_url: str, migrated_url: str) -> AsyncIterator[Pair]:
    """Two workers with a lease of three seconds."""
    both = Pair(tmp_path, REDIS_URL=redis_url, DATABASE_URL=migrated_url, WORKER_TIMEOUT=3)
    async with both.running():
        yield both


async def ready_again(node: Node) -> None:
    async with asyncio.timeout(60):
        while await asyncio.to_thread(node.get, "/health/ready") != 200:
            await eventually()


def lease_until(worker: Node) -> datetime:
    """When the lease of a worker ends, as the database has it."""
    with psycopg.connect(worker.environment["DATABASE_URL"]) as rows:
        sql = "SELECT lease_until FROM msgnode_worker WHERE pid = %s"
        ((until,),) = rows.execute(sql, (worker.pid,)).fetchall()
    assert isinstance(until, datetime)
    return until


async def test_w1_frozen_beyond_its_lease_a_worker_is_fenced_and_comes_back(pair: Pair) -> None:
    live, frozen = pair.one, pair.other
    stays = [await pair.come(live) for _ in range(3)]
    caught = [await pair.come(frozen) for _ in range(10)]
    held = [(await client.allocate())[0] for client in caught]
    pid = frozen.pid
    os.kill(pid, signal.SIGSTOP)
    began, until = time.monotonic(), lease_until(frozen)
    try:
        async with asyncio.timeout(60):
            while "of its sessions may have missed messages" not in live.log():
                await eventually()
        assert datetime.now(UTC) >= until, "taken over before the lease had ended"
        for own in held:
            await stays[0].send("create", own, {"value": "waits"})
        await stays[0].ask("create", address())  # its answer comes behind what waits
        await asyncio.sleep(FROZEN - (time.monotonic() - began))  # the freeze itself
        for number, client in enumerate(caught):  # said to a worker that does not know it yet
            await client.send("create", held[number - 1], {"value": "into the freeze"})
    finally:
        os.kill(pid, signal.SIGCONT)
    woken = time.monotonic()
    codes = await asyncio.wait_for(asyncio.gather(*(client.close_code() for client in caught)), 60)
    fenced = time.monotonic() - woken
    assert set(codes) == {3001}
    await ready_again(frozen)
    serving = time.monotonic() - woken
    log.info("fenced %.2f s after it woke, serving again after %.2f s", fenced, serving)
    assert frozen.pid == pid, "the process is the same: no supervisor had to do anything"
    assert frozen.is_running()
    returned = await asyncio.gather(*(pair.back(frozen, client) for client in caught))
    for client, own in zip(returned, held, strict=True):
        gap = await client.expect(type="update", to=f"{client.runtime_url}/status")
        assert gap["body"]["value"] == "gap"
        assert (await client.expect(type="create"))["body"]["value"] == "waits"
        await stays[1].send("create", own, {"value": own})
        assert (await client.expect(type="create"))["body"]["value"] == own
    (late,) = await returned[0].allocate()
    await stays[2].send("create", late, {"value": "both know it"})
    assert (await returned[0].expect(type="create"))["to"] == late
    assert '"worker-fenced"' in await asyncio.to_thread(live.manage, "node_status", "--json")


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

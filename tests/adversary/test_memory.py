"""One source that has much queued: its sessions are told of the gap, the node stays small, and who
comes from elsewhere is served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from tests.client import Client, address
from tests.node import Node, running

pytestmark = pytest.mark.long

SESSIONS = 80
LIMITS = {"MAX_QUEUE_BYTES_PER_SOURCE": 8 * 1024 * 1024, "MAX_QUEUE_BYTES": 32 * 1024 * 1024}
ROOM = 96 * 1024 * 1024
FLOODER = "127.0.0.2"
TEXT = "x" * 30_000


async def arrive(node: Node, source: str = "127.0.0.1") -> Client:
    return await (await node.ws().connect(local_addr=(source, 0))).open()


async def test_detached_sessions_of_one_source_take_a_bounded_part_of_the_memory(
    tmp_path: Path, template: Path
) -> None:
    with running(tmp_path / "node", template, **LIMITS) as node:
        flooder = await arrive(node, FLOODER)
        gone = [await arrive(node, FLOODER) for _ in range(SESSIONS)]
        one, other, away = [await arrive(node) for _ in range(3)]
        for client in (*gone, away):
            await client.hang_up()
        process = psutil.Process(node.pid)
        before = process.memory_info().rss

        async def flood() -> None:
            for _ in range(40):
                for client in gone:
                    await flooder.send("update", client.runtime_url, {"value": TEXT})

        flooding = asyncio.create_task(flood())
        while not flooding.done():
            id_ = await one.send("update", other.runtime_url, {"value": "word"})
            await other.expect(id=id_)
        await flooding
        await one.send("update", away.runtime_url, {"value": "kept for you"})
        await one.settled()
        assert process.memory_info().rss - before < ROOM
        assert gauge(node, "msgnode_outbox_bytes") <= LIMITS["MAX_QUEUE_BYTES_PER_SOURCE"] + 1000
        assert gauge(node, "msgnode_queue_budget_refusals_total") > 0

        await away.connect()
        await away.reopen(away.runtime_url, away.token)
        assert (await away.expect(type="update"))["body"]["value"] == "kept for you"
        await gone[-1].connect()
        await gone[-1].reopen(gone[-1].runtime_url, gone[-1].token)
        assert await gone[-1].expect(sender="domain://msg-node.localhost")
        for client in (flooder, one, other, away, gone[-1]):
            await client.hang_up()


async def test_readers_that_do_not_read_take_a_bounded_part_of_the_memory(
    tmp_path: Path, template: Path
) -> None:
    """What their sockets were handed and have not sent counts: it is most of what they hold."""
    limits = {**LIMITS, "MAX_BYTES_PER_SECOND": 10**10}
    with running(tmp_path / "node", template, **limits) as node:
        reporter, one, other = [await arrive(node) for _ in range(3)]
        shared = address("comm")
        await reporter.subscribe(shared)
        frozen = [await arrive(node, FLOODER) for _ in range(SESSIONS)]
        for client in frozen:
            await client.subscribe(f"{shared}/changes")
            client.socket.transport.pause_reading()
        process = psutil.Process(node.pid)
        before = process.memory_info().rss
        for _ in range(12):
            await reporter.send("update", f"{shared}/changes", {"value": "x" * 1_000_000})
            id_ = await one.send("update", other.runtime_url, {"value": "word"})
            await other.expect(id=id_)
        await one.settled()
        assert gauge(node, "msgnode_outbox_bytes") <= LIMITS["MAX_QUEUE_BYTES_PER_SOURCE"] + 1000
        assert gauge(node, "msgnode_queue_budget_refusals_total") > 0
        assert process.memory_info().rss - before < ROOM  # what was freed is not all given back
        for client in (reporter, one, other):
            await client.hang_up()
        for client in frozen:
            client.cut()


def gauge(node: Node, name: str) -> float:
    lines = node.text("/metrics").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

"""A flood of mutated frames from clients that come, misbehave and reset: nobody else is harmed by
it, and afterwards the node is as it was. MUTATED_FRAMES makes it a longer run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from websockets.exceptions import WebSocketException

from tests.adversary.conftest import talking
from tests.client import Client, address, code
from tests.fuzz.test_garbage import Garbage
from tests.length import length
from tests.node import Node, eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

FRAMES = int(os.environ.get("MUTATED_FRAMES", length(6_000, full=20_000)))
CLIENTS = 8
BUNCH = 300
ROOM = 64 * 1024 * 1024
BACK_WITHIN = 60.0


async def misbehave(node: Node, frames: int, seed: int) -> None:
    """Sessions one after another, each with a bunch of mutated frames and a reset at its end."""
    chance = random.Random(seed)
    sent = 0
    while sent < frames:
        client = node.ws()
        with contextlib.suppress(WebSocketException, OSError, TimeoutError):
            await client.connect()
            await client.open()
            garbage = Garbage(chance.randrange(1 << 30), client, client)
            for _ in range(BUNCH):
                await client.send_raw(garbage.frame())
                sent += 1
            if chance.randrange(2):
                reset(client)
            else:
                await client.hang_up()


def reset(client: Client) -> None:
    raw: socket.socket = client.socket.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.cut()


async def test_a_flood_of_mutated_frames_harms_nobody_and_leaves_nothing_behind(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(GRACE_PERIOD=5)
    process = psutil.Process(node.pid)
    async with talking(node) as bystanders:
        await misbehave(node, FRAMES // 20, 0)  # what is loaded once is loaded
        before = process.memory_info().rss
        began = bystanders.words
        each = FRAMES // CLIENTS
        await asyncio.gather(*(misbehave(node, each, seed) for seed in range(1, CLIENTS + 1)))
        assert bystanders.words > began
        async with node.ws() as one, node.ws() as other:
            await one.open()
            await other.open()
            for number in range(6):
                await one.send("execute", other.runtime_url, {"n": number}, id=f"fresh-{number}")
                assert (await other.expect(id=f"fresh-{number}"))["body"]["n"] == number
            assert code(await one.ask("read", address())) == 404
    limit = time.monotonic() + BACK_WITHIN
    while process.memory_info().rss - before > ROOM:
        assert time.monotonic() < limit, f"{(process.memory_info().rss - before) >> 20} MiB more"
        await eventually()
    assert "Traceback" not in node.log()

"""Messages that cost the node more than they cost their sender: large ones to many recipients."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client import Client, code, runtime
from tests.node import Node

RECIPIENTS = 1000
SIZE = 900_000


async def quantiles(
    speaker: Client, hearer: Client, done: Callable[[], bool]
) -> tuple[float, float, int]:
    """p99 and worst of the seconds from one word of a pair to its arrival, and how many."""
    took: list[float] = []
    while not done():
        mark = f"word-{len(took)}"
        began = time.perf_counter()
        await speaker.send("execute", hearer.runtime_url, {"value": mark}, id=mark)
        await hearer.expect(id=mark)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)  # a pace of talking, not a wait for anything
    took.sort()
    return took[int(len(took) * 0.99)], took[-1], len(took)


async def attack(client: Client, to: list[str], messages: int, size: int) -> None:
    """Large messages to many; the last of them to ourselves, as a mark that they are through."""
    for number in range(messages):
        await client.send("execute", to, {"value": "x" * size}, id=f"large-{number}")
    await client.send("execute", client.runtime_url, {"value": "through"}, id="through")
    async with asyncio.timeout(120):
        while True:
            frame = json.loads(await client.socket.recv())
            if frame["id"] == "through":
                return


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_bystander_is_served_while_a_large_message_goes_to_a_thousand(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    async with node.ws() as attacker, node.ws() as speaker, node.ws() as hearer:
        await attacker.open()
        await speaker.open()
        await hearer.open()
        async with node.ws() as absent:
            await absent.open()
        own = [f"{attacker.runtime_url}/{number}" for number in range(20)]
        queued = [f"{absent.runtime_url}/{number}" for number in range(RECIPIENTS // 2)]
        nobody = [runtime() for _ in range(RECIPIENTS - len(own) - len(queued))]
        attacking = asyncio.create_task(attack(attacker, [*own, *queued, *nobody], 3, SIZE))
        p99, worst, number = await quantiles(speaker, hearer, attacking.done)
        await attacking
    if os.environ.get("SHOW"):
        print(f"\n{number} words: p99 {p99 * 1000:.1f} ms, worst {worst * 1000:.1f} ms")
    assert number > 20
    assert worst < 10.0  # the figures stand in docs/performance.md; here it may not stand still


@pytest.mark.long
async def test_what_a_message_costs_counts_against_its_senders_limits(
    start_node: Callable[..., Node],
) -> None:
    """20 recipients of 10 KB at 100 KB/s: two seconds until the next message is read."""
    node = start_node(MAX_BYTES_PER_SECOND=100_000)
    async with node.ws() as sender, node.ws() as other:
        await sender.open()
        await other.open()
        to = [f"{other.runtime_url}/{number}" for number in range(20)]
        began = time.monotonic()
        await sender.send("execute", to, {"value": "x" * 15_000})
        assert code(await sender.ask("read", runtime())) == 404
        assert time.monotonic() - began > 1.0
        heard: list[Any] = [await other.expect(type="execute", to=each) for each in to]
        assert all(each["body"]["value"] == "x" * 15_000 for each in heard)

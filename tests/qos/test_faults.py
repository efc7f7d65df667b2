"""What is shared when something fails: two workers, a quota in mid-call, each part killed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.client import Client, code
from tests.conftest import Come
from tests.e2e.pair import Pair
from tests.node import Node, eventually

from .coturn import finished, talk
from .test_connector import QOS, VIDEO, answering_stun
from .test_coturn import LIMIT, in_redis, packets_for, place, reserve, until, until_running
from .test_coturn import Place as OnePlace

__all__ = ["answering_stun", "place"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SERVER = """
from msgnode.qos.models import *
TurnServer.objects.create(name="t", urls="turn:127.0.0.1:PORT", capacity=5_000_000)
"""
ROW = "SELECT received, sent, is_incomplete FROM qos_reservation WHERE id = ?"
USED = "SELECT used FROM qos_customer WHERE name = ?"


@pytest.fixture
async def pair(
    tmp_path: Path, redis_url: str, migrated_url: str, answering_stun: int
) -> AsyncIterator[Pair]:
    both = Pair(tmp_path, REDIS_URL=redis_url, DATABASE_URL=migrated_url, QOS_BROKER="embedded")
    both.one.manage("shell", "-c", SERVER.replace("PORT", str(answering_stun)))
    async with both.running():
        yield both


async def test_another_worker_supervises_when_the_one_that_did_is_killed(pair: Pair) -> None:
    by_worker = {node: await pair.come(node) for node in (pair.one, pair.other)}
    supervisor = await supervising(by_worker)
    left = pair.other if supervisor is pair.one else pair.one
    client = by_worker[left]
    made = await client.ask("create", QOS, VIDEO)
    supervisor.kill()
    async with asyncio.timeout(60):
        while "standby" in left.text("/health/ready"):
            await eventually()
    path = {"resource": f"/reservations/{made['body']['value']['reservationId']}"}
    assert code(await client.ask("delete", QOS, path)) == 200
    assert (await client.expect(type="update", sender=QOS))["body"]["value"] == "released"


async def supervising(nodes: Any) -> Node:
    async with asyncio.timeout(60):
        while True:
            for node in nodes:
                if "TURN servers up" in node.text("/health/ready"):
                    assert isinstance(node, Node)
                    return node
            await eventually()


async def test_case_31_a_quota_that_is_reached_in_mid_call_cuts_it(
    place: OnePlace, come: Come
) -> None:
    quota = 1_000_000
    place.shell(
        f'from msgnode.qos.models import *\nCustomer(name="mid", quota={quota}).save()\nprint(1)'
    )
    client = await come(to=place.node)
    await in_redis(place)
    value = await reserve(client, "mid")
    (ice,) = value["iceServers"]
    talking = talk(place.turn, ice, packets=20_000, size=500, every=5)  # 100 seconds
    try:
        await until_running(place.turn, ice["username"], lambda number: number > 0)
        async with asyncio.timeout(60):
            told = await client.expect(type="update", sender=QOS)
        assert told["body"]["value"] == "exceeded"
        await until_running(place.turn, ice["username"], lambda number: number == 0)
        assert talking.poll() is None, "it was to be cut in mid-call"
    finally:
        talking.kill()
        talking.communicate()
    body = {**VIDEO, "value": {"class": "audio", "cspId": "mid"}}
    assert code(await client.ask("create", QOS, body)) == 403
    await until_rows(place.node, lambda rows: quota <= rows[0][0] < 20_000 * 500 * 4, USED, "mid")


async def until_rows(
    node: Node, is_so: Callable[[list[Any]], bool], query: str, *values: object
) -> None:
    """Wait until this is so of what a query finds in the node's database."""
    limit = time.monotonic() + LIMIT
    while not is_so(rows := node.rows(query, *values)):
        assert time.monotonic() < limit, rows
        await eventually(0.2)


async def state(node: Node, wish: Callable[[str], bool]) -> str:
    """What /health/ready says of the broker, once it is so."""
    said = ""
    limit = time.monotonic() + LIMIT
    while not wish(said):
        assert time.monotonic() < limit, said
        await eventually(0.2)
        body = await asyncio.to_thread(node.text, "/health/ready")
        said = str(json.loads(body).get("connectors", {}).get("qos", ""))
    return said


async def test_case_33_a_node_that_is_killed_in_mid_call_counts_to_the_byte_afterwards(
    place: OnePlace,
) -> None:
    async with AsyncExitStack() as stack:
        client: Client = await stack.enter_async_context(place.node.ws())
        await client.open()
        await in_redis(place)
        value = await reserve(client)
        (ice,) = value["iceServers"]
        packets = packets_for(6, place.started_in)
        talking = talk(place.turn, ice, packets=packets, size=500)
        await until(client, value, state="active")
        await asyncio.to_thread(place.node.kill)
        await asyncio.to_thread(place.node.start)
        back = await stack.enter_async_context(place.node.ws())
        assert code(await back.reopen(client.runtime_url, client.token)) == 200
        await state(place.node, lambda said: said == "1 of 1 TURN servers up")
        assert talking.poll() is None, "the call was to outlast the restart"
        result = await asyncio.to_thread(finished, talking, 150)
        assert (result.sent, result.received) == (2 * packets, 2 * packets), result.said[-1500:]
        await until(back, value, received=2 * packets * 500, sent=2 * packets * 500)
        path = {"resource": f"/reservations/{value['reservationId']}"}
        assert code(await back.ask("delete", QOS, path)) == 200  # ends what the client has left
        counted = [(2 * packets * 500, 2 * packets * 500, False)]
        await until_rows(place.node, lambda rows: rows == counted, ROW, value["reservationId"])
        await until_rows(place.node, lambda rows: rows == [(4 * packets * 500,)], USED, "csp1")

"""The record of a real node on a real object store: there, away, slow and full."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.node import Node
from tests.object_store import BUCKET, ObjectStore
from tests.traffic.rows import ids, raw_rows
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BUFFER = 2_000
MESSAGES = 3_000
CARRIED_WITHIN = 10.0  # seconds of a hundred messages, on a machine that has other things to do
TOLD_SECONDS = 90.0


@pytest.fixture
def begin(object_store: ObjectStore, start_node: Callable[..., Node]) -> Callable[[int], Node]:
    """Start a node whose record holds so many rows that are not yet written."""

    def start(rows: int) -> Node:
        return start_node(
            RECORD_URL=object_store.url, RECORD_FLUSH_SECONDS=0.2, RECORD_BUFFER_ROWS=rows,
            **object_store.environment,
        )  # fmt: skip

    return start


def rows_in(store: ObjectStore) -> list[int]:
    """The ids of all rows, as anybody reads them."""
    return ids(raw_rows(f"{BUCKET}/{store.name}/raw", store.system()))


def figures(node: Node) -> dict[str, float]:
    """The record's rows, and all messages and steps of sessions, by the node's own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found = {
        name: float(value)
        for name, value in re.findall(r"^msgnode_record_rows_(\w+?)(?:_total)? (\S+)$", text, re.M)
    }
    found["noted"] = sum(
        map(
            float, re.findall(r"^msgnode_(?:messages|session_steps)_total\{.*\} (\S+)$", text, re.M)
        )
    )
    return found


async def settle(
    node: Node, fits: Callable[[dict[str, float]], bool], seconds: float = 20
) -> dict[str, float]:
    limit = time.monotonic() + seconds
    while not fits(found := await asyncio.to_thread(figures, node)):
        assert time.monotonic() < limit, found
        await asyncio.sleep(0.05)
    return found


def alarm(node: Node) -> str:
    """The text of the record's alarm that stands, "" if none does."""
    with closing(sqlite3.connect(node.data_dir / "node.sqlite3")) as database:
        row = database.execute(
            "select text from msgnode_alarm "
            "where kind = 'record-not-written' and cleared_at is null"
        ).fetchone()
    return str(row[0]) if row else ""


async def told(node: Node) -> str:
    """The alarm, which stands once a write has failed."""
    return await asyncio.to_thread(until, lambda: alarm(node), TOLD_SECONDS)


async def exchange(node: Node, messages: int) -> float:
    """Messages from one session to another, in windows; the longest any took, in seconds."""
    longest = 0.0
    async with node.ws() as alice, node.ws() as bob:
        await alice.open()
        await bob.open()
        for first in range(0, messages, 100):
            began = time.monotonic()
            for number in range(first, first + 100):
                await alice.send("execute", bob.runtime_url, {"value": number})
            await bob.expect(type="execute", body={"value": first + 99, "auth": False})
            longest = max(longest, time.monotonic() - began)
    return longest


async def test_each_row_is_in_the_store_once(
    begin: Callable[[int], Node], object_store: ObjectStore
) -> None:
    started = begin(100_000)
    await exchange(started, MESSAGES)
    found = await settle(started, lambda found: found["held"] == 0, 60)
    assert (found["lost"], found["written"]) == (0, found["noted"])
    started.terminate()
    assert started.status() == 0
    kept = rows_in(object_store)
    assert len(kept) == found["noted"] >= MESSAGES


async def test_traffic_goes_on_while_the_store_is_away_or_frozen_and_rows_are_counted(
    begin: Callable[[int], Node], object_store: ObjectStore
) -> None:
    started = begin(BUFFER)
    object_store.signal(signal.SIGSTOP)
    try:
        assert await exchange(started, MESSAGES) < CARRIED_WITHIN
        found = await settle(started, lambda found: found["held"] == BUFFER)
        assert found["lost"] == found["noted"] - BUFFER > 0
    finally:
        object_store.signal(signal.SIGCONT)
    found = await settle(started, lambda found: found["held"] == 0, 120)
    assert found["written"] + found["lost"] == found["noted"]
    object_store.stop("proxy")
    assert await exchange(started, MESSAGES) < CARRIED_WITHIN
    found = await settle(started, lambda found: found["held"] == BUFFER)
    assert await told(started)
    object_store.start("proxy")
    found = await settle(started, lambda found: found["held"] == 0, 120)
    assert found["written"] + found["lost"] == found["noted"]
    started.terminate()
    assert started.status() == 0
    assert len(rows_in(object_store)) == found["written"]


async def test_a_full_store_is_told_and_costs_no_message(
    begin: Callable[[int], Node], object_store: ObjectStore
) -> None:
    started = begin(BUFFER)
    object_store.fill()
    assert await exchange(started, MESSAGES) < CARRIED_WITHIN
    found = await settle(started, lambda found: found["held"] == BUFFER)
    assert found["lost"] == found["noted"] - BUFFER
    assert await told(started)
    object_store.empty()
    found = await settle(started, lambda found: found["held"] == 0, 120)
    assert found["written"] + found["lost"] == found["noted"]
    started.terminate()
    assert started.status() == 0
    assert len(rows_in(object_store)) == found["written"]

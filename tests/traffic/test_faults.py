"""The record of a real node on a disk that is full, and of one that is killed."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.node import Node
from tests.traffic.rows import ids, raw_rows
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]
BUFFER = 2_000
MESSAGES = 6_000
CARRIED_WITHIN = 10.0  # seconds of a hundred messages, on a machine that has other things to do
TOLD_SECONDS = 90.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB that is full."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True
    )
    if done.returncode:
        pytest.skip("no file system can be mounted here: only root may")
    try:
        fill(place)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> None:
    with (place / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(bytes(4096))


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


def rows_in(place: Path) -> list[int]:
    return ids(raw_rows(place / "raw"))


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


async def test_traffic_goes_on_while_the_disk_is_full_and_each_lost_row_is_counted(
    start_node: Callable[..., Node], small_disk: Path
) -> None:
    node = start_node(
        RECORD_URL=small_disk / "record", RECORD_MIN_FREE_BYTES=0, RECORD_FLUSH_SECONDS=0.2,
        RECORD_BUFFER_ROWS=BUFFER,
    )  # fmt: skip
    assert await exchange(node, MESSAGES) < CARRIED_WITHIN
    found = await settle(node, lambda found: found["held"] == BUFFER)
    assert found["written"] == 0
    assert found["lost"] == found["noted"] - BUFFER
    assert found["lost"] >= MESSAGES - BUFFER
    assert "No space left" in await told(node)

    (small_disk / "filler").unlink()
    found = await settle(node, lambda found: found["held"] == 0)
    assert found["written"] + found["lost"] == found["noted"]
    node.terminate()
    assert node.status() == 0
    assert len(rows_in(small_disk / "record")) == found["written"]
    assert alarm(node) == ""


async def test_a_killed_node_loses_no_more_than_the_last_seconds(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(RECORD_FLUSH_SECONDS=1)
    await exchange(node, 300)
    found = await settle(node, lambda found: found["written"] >= 300)  # while it runs
    await exchange(node, 100)
    node.kill()
    assert raw_rows(node.data_dir / "record" / "raw").num_rows >= found["written"]

"""The record of a real node on a real object store: there, away, slow and full."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.node import Node
from tests.object_store import BUCKET, ObjectStore
from tests.traffic.rows import ids, raw_rows
from tests.traffic.test_faults import CARRIED_WITHIN, exchange, settle, told

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BUFFER = 2_000
MESSAGES = 3_000


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

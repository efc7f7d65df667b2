"""Two real nodes: a request that is stored gets there though both are killed meanwhile.

And though the disk is full meanwhile: what could not be stored was said so.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.client import Client, code
from tests.e2e.test_full_disk import fill, small_disk  # noqa: F401  (a fixture)

from .nodes import A, B, TwoNodes, answer_requests, come, subscribe
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.asyncio, pytest.mark.long]


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    with TwoNodes(
        tmp_path, template, FEDERATION_STORED_MESSAGES=5, FEDERATION_STORE_HOURS=2
    ).running() as two:
        yield two


@pytest.fixture
def on_small_disk(small_disk: Path, template: Path) -> Iterator[TwoNodes]:  # noqa: F811
    keeps_nothing_free = {"RECORD_MIN_FREE_BYTES": 0}
    two = TwoNodes(small_disk / "nodes", template, keeps_nothing_free, **keeps_nothing_free)
    with two.running():
        yield two


async def back(client: Client, port: int) -> Client:
    """The same runtime, after its node was killed."""
    again = await Client(f"ws://127.0.0.1:{port}/ws").connect()
    assert code(await again.reopen(client.runtime_url, client.token)) == 200
    return again


async def test_case_59_a_stored_request_outlives_the_peer_and_the_node_that_stores_it(
    nodes: TwoNodes,
) -> None:
    ours, theirs = f"hyperty://{A}/asker", f"hyperty://{B}/asked"
    asker, answerer = await come(nodes.a, A, "asker"), await come(nodes.b, B, "asked")
    assert code(await subscribe(asker, A, ours)) == 200
    assert code(await subscribe(answerer, B, theirs)) == 200
    nodes.b.kill()
    for number in range(6):
        body = {"value": number, "store": True}
        await asker.send("read", theirs, body, id=f"s{number}", sender=ours)
    told = [code(await asker.answer(f"s{number}")) for number in range(6)]
    assert told == [100] * 5 + [503], "five are stored for a peer here"
    with closing(sqlite3.connect(nodes.a.data_dir / "node.sqlite3")) as database:
        asked = (
            "SELECT round(24 * (julianday(until) - julianday(since))) FROM msgnode_storedmessage"
        )
        assert database.execute(asked).fetchall() == [(2.0,)] * 5
    nodes.a.kill()
    await asyncio.to_thread(nodes.a.start)
    asker = await back(asker, nodes.a.port)
    await asyncio.to_thread(nodes.b.start)
    answering = asyncio.create_task(answer_requests(await back(answerer, nodes.b.port)))
    for number in range(5):
        answer = await asker.answer(f"s{number}")
        assert (code(answer), answer["body"]["value"]) == (200, number)
    answering.cancel()


async def test_case_59_on_a_full_disk_nothing_is_lost_that_was_said_to_be_stored(
    on_small_disk: TwoNodes,
    small_disk: Path,  # noqa: F811
) -> None:
    nodes = on_small_disk
    ours, theirs = f"hyperty://{A}/asker", f"hyperty://{B}/asked"
    asker, answerer = await come(nodes.a, A, "asker"), await come(nodes.b, B, "asked")
    neighbour = await come(nodes.a, A, "neighbour")
    assert code(await subscribe(asker, A, ours)) == 200
    assert code(await subscribe(answerer, B, theirs)) == 200
    nodes.b.kill()
    filler: Path | None = None
    told: dict[str, int] = {}
    for number in range(400):
        if number == 3:
            filler = fill(small_disk)
        body = {"value": number, "store": True, "more": "x" * 4_000}
        id_ = await asker.send("read", theirs, body, id=f"s{number}", sender=ours)
        answer = await asker.answer(id_)
        told[id_] = code(answer)
        if told[id_] != 100:
            break
    assert filler is not None
    assert told.pop(id_) == 503
    assert "could not be stored" in answer["body"]["description"]
    assert len(told) >= 3
    id_ = await asker.send("update", neighbour.runtime_url, {"value": "still here"})
    await neighbour.expect(id=id_)
    nodes.a.kill()
    filler.unlink()
    await asyncio.to_thread(nodes.a.start)
    asker = await back(asker, nodes.a.port)
    await asyncio.to_thread(nodes.b.start)
    answering = asyncio.create_task(answer_requests(await back(answerer, nodes.b.port)))
    for id_ in told:
        assert code(await asker.answer(id_)) == 200
    answering.cancel()

"""The node dies or stops, and comes back: what was acknowledged is there, and a gap is signalled.

Each test runs on SQLite and on a real PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.client import ALLOCATION, SM, Client, Frame, address, code, runtime
from tests.conftest import Come
from tests.node import Node, running

pytestmark = pytest.mark.long


@pytest.fixture(params=["sqlite", "postgres"])
def own(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> Iterator[Node]:
    """A node of the test's own on the database of the parameter."""
    settings = {}
    if request.param == "postgres":
        settings["DATABASE_URL"] = request.getfixturevalue("migrated_url")
    with running(tmp_path, template, **settings) as node:
        yield node


async def test_what_was_acknowledged_before_a_kill_is_there_after_it(own: Node, come: Come) -> None:
    enough = asyncio.Event()
    lives = [_Life(own) for _ in range(4)]
    busy = [asyncio.create_task(life.spend(enough, 120)) for life in lives]
    await asyncio.wait_for(enough.wait(), 60)
    own.kill()  # in the middle of what all of them are asking for
    await asyncio.gather(*busy)
    own.start()
    talker = await come(to=own)
    for life in lives:
        async with own.ws() as back:
            answer = await back.reopen(life.client.runtime_url, life.client.token)
            assert "runtimeToken" not in answer["body"]
            assert (await back.expect(type="update"))["body"]["value"] == "gap"
            for each in life.held:
                await talker.send("create", each)
            for each in life.subscribed:
                await talker.send("update", f"{each}/changes", sender=each)
            arrived = {frame["to"] for frame in await back.received_from(talker)}
            assert life.held <= arrived
            assert {f"{each}/changes" for each in life.subscribed} <= arrived
        for each in life.released - life.held:
            assert code(await talker.ask("create", each)) == 404


class _Life:
    """A runtime that allocates, claims, releases and subscribes until the node is gone."""

    def __init__(self, node: Node) -> None:
        self.client = node.ws()
        self.held: set[str] = set()
        self.subscribed: set[str] = set()
        self.released: set[str] = set()

    async def spend(self, enough: asyncio.Event, number: int) -> None:
        await self.client.connect()
        await self.client.open()
        try:
            while True:
                await self._ask(address("comm"), address())
                if len(self.held) >= number:
                    enough.set()
        except ConnectionClosed:
            await self.client.hang_up()

    async def _ask(self, observed: str, claimed: str) -> None:
        client = self.client
        ids = [
            await client.send("create", ALLOCATION, {"value": {"number": 3}}),
            await client.send("subscribe", SM, {"resources": [f"{observed}/changes"]}),
            await client.send("subscribe", SM, {"resources": [claimed]}),
        ]
        allocated = await client.answer(ids[0])
        held = allocated["body"]["value"]["allocated"]
        self.held.update(held[:2])
        assert code(await client.answer(ids[1])) == 200
        self.subscribed.add(observed)
        assert code(await client.answer(ids[2])) == 200
        self.held.add(claimed)
        answer = await client.ask("delete", ALLOCATION, {"resource": held[2]})
        assert code(answer) == 200
        self.released.add(held[2])


async def test_a_clean_stop_sends_everybody_back_and_signals_no_gap(own: Node, come: Come) -> None:
    client, stub = await come(to=own), await come(handshake="stub", to=own)
    (held,), (of_stub,) = await client.allocate(), await stub.allocate()
    await client.subscribe(f"{of_stub}/changes")
    own.terminate()
    assert await client.close_code() == 3001
    assert await stub.close_code() == 3001
    assert own.status() == 0
    assert not (own.data_dir / "node.sqlite3-wal").exists()  # no thread has kept a connection
    own.start()
    async with own.ws() as back, own.stub(stub.runtime_url) as stub_back:
        assert code(await back.reopen(client.runtime_url, client.token)) == 200
        assert await back.settled() == []
        assert await stub_back.settled() == []
        await stub_back.send("update", f"{of_stub}/changes", sender=of_stub)
        await stub_back.send("create", held)
        arrived = [each["to"] for each in await back.received_from(stub_back)]
        assert arrived == [f"{of_stub}/changes", held]


async def test_a_clean_stop_signals_a_gap_to_a_session_whose_queue_was_lost(
    own: Node, come: Come
) -> None:
    async with own.ws() as away:
        await away.open()
    talker = await come(to=own)
    await talker.send("create", away.runtime_url, {"value": "lost"})
    await talker.settled()
    own.terminate()
    assert own.status() == 0
    own.start()
    async with own.ws() as back:
        await back.reopen(away.runtime_url, away.token)
        gap = await back.receive()
        assert (gap["type"], gap["to"]) == ("update", f"{away.runtime_url}/status")
        assert gap["body"]["value"] == "gap"
        assert await back.settled() == []


async def test_after_a_kill_every_session_is_told_of_the_gap_once(own: Node, come: Come) -> None:
    client = await come(to=own)
    own.kill()
    own.start()
    for expected in (["gap"], []):
        async with own.ws() as back:
            await back.reopen(client.runtime_url, client.token)
            assert [each["body"]["value"] for each in await back.settled()] == expected


async def test_a_closed_session_stays_closed_after_a_kill(own: Node, come: Come) -> None:
    client = await come(to=own)
    (held,) = await client.allocate()
    await client.close_session()
    watcher = await come(to=own)
    await watcher.allocate()  # committed after the close, so that one is too
    own.kill()
    own.start()
    async with own.ws() as back:
        assert "runtimeToken" in (await back.reopen(client.runtime_url, client.token))["body"]
        talker = await come(to=own)
        assert code(await talker.ask("create", held)) == 404


async def test_stubs_that_hammer_a_restarting_node_all_get_back(own: Node) -> None:
    clients = []
    for _ in range(20):
        client = own.ws()
        await client.connect()
        clients.append(await client.open(runtime()))
    own.terminate()
    returning = [asyncio.create_task(_return(own, each)) for each in clients]
    assert await asyncio.to_thread(own.status) == 0
    await asyncio.to_thread(own.start)
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*returning)
    assert all(code(each) == 200 and "runtimeToken" not in each["body"] for each in answers)


async def _return(node: Node, before: Client) -> Frame:
    """What a stub of the field does: connect again at once, until it works."""
    await before.close_code()
    while True:
        try:
            async with node.ws() as client:
                return await client.reopen(before.runtime_url, before.token)
        except (OSError, ConnectionClosed, InvalidHandshake):
            await asyncio.sleep(0)

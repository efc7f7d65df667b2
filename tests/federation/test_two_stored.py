"""Two real nodes: a request that is stored gets there though both are killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import Client, code

from .nodes import A, B, TwoNodes, answer_requests, come, subscribe
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.asyncio, pytest.mark.long, pytest.mark.any_server]


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path, template, FEDERATION_STORED_MESSAGES=5)
    two.start()
    try:
        two.introduce()
        yield two
    finally:
        two.kill()


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
    nodes.a.kill()
    await asyncio.to_thread(nodes.a.start)
    asker = await back(asker, nodes.a.port)
    await asyncio.to_thread(nodes.b.start)
    answering = asyncio.create_task(answer_requests(await back(answerer, nodes.b.port)))
    for number in range(5):
        answer = await asker.answer(f"s{number}")
        assert (code(answer), answer["body"]["value"]) == (200, number)
    answering.cancel()

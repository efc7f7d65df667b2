"""Two workers of a node: one serves the peer, and when it is killed the other one does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import Client, code
from tests.e2e.pair import OwnRedis
from tests.node import Node

from .nodes import A, B, TwoNodes, answer_requests, come, subscribe, subscribed_at
from .sandboxes import needs_deno

pytestmark = [needs_deno, pytest.mark.asyncio, pytest.mark.long]


@pytest.fixture
def workers(tmp_path: Path, template: Path) -> Iterator[tuple[TwoNodes, Node]]:
    redis = OwnRedis(tmp_path)
    redis.start()
    shared = {"REDIS_URL": redis.url, "WORKERS": 2, "WORKER_TIMEOUT": 3}
    nodes = TwoNodes(tmp_path / "nodes", template, **shared)
    other = nodes.second_worker()
    try:
        nodes.start()
        nodes.introduce()
        other.start()
        yield nodes, other
    finally:
        nodes.kill()
        other.kill()
        redis.stop()


async def test_case_61_when_the_worker_that_serves_a_peer_is_killed_another_takes_over(
    workers: tuple[TwoNodes, Node],
) -> None:
    nodes, other = workers
    asker = await come(other, A, "asker")
    answerer = await come(nodes.b, B, "answerer")
    to = f"hyperty://{B}/one"
    assert code(await subscribe(answerer, B, to)) == 200
    answering = asyncio.create_task(answer_requests(answerer))
    await _answered(asker, to)  # by the worker that has the peer, from the other one
    reporter = await come(nodes.b, B, "reporter")
    changes = f"comm://{B}/room/changes"
    assert code(await subscribe(asker, A, changes)) == 200
    assert subscribed_at(nodes.b, changes) == 1, "by the worker that has the peer"
    await reporter.send("update", changes, {"value": 1}, sender=f"comm://{B}/room")
    assert (await asker.expect(type="update", to=changes))["body"]["value"] == 1
    nodes.a.kill()
    await _answered(asker, to)
    told = await asker.expect(type="update", to=f"{asker.runtime_url}/status")
    assert told["body"]["value"] == "gap", "what was said meanwhile did not come"
    assert subscribed_at(nodes.b, changes) == 1
    await reporter.send("update", changes, {"value": 2}, sender=f"comm://{B}/room")
    update = await asker.expect(type="update", to=changes)
    assert update["body"]["value"] == 2
    answering.cancel()


async def _answered(asker: Client, to: str) -> None:
    """Ask until there is an answer of the other domain; until then each refusal has its reason.

    What waited in the worker that was killed is lost, and whoever asked asks again.
    """
    async with asyncio.timeout(60):
        while True:
            try:
                async with asyncio.timeout(3):
                    answer = await asker.ask("read", to, {"value": 1})
            except TimeoutError:
                continue
            if code(answer) == 200:
                return
            assert code(answer) in (403, 503, 504), answer
            await asyncio.sleep(0.2)

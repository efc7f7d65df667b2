"""Two workers of a node: one serves the peer, and when it is killed the other one does.

What a visitor of the peer's domain may do is the same at either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from tests.client import Client, code
from tests.e2e.pair import OwnRedis, Pair, running
from tests.node import Node, eventually, free_port

from .catalogues import Catalogue, described
from .field_nodes import VertxNode
from .nodes import A, B, TwoNodes, answer_requests, come, publish, subscribe, subscribed_at
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


# --- visitors of a field domain -------------------------------------------------------------------

THEIRS, CAROL, OURS = f"hyperty://{B}/1", f"hyperty://{B}/carol", f"hyperty://{A}/told"
SECONDS = 60.0


@pytest.fixture
def met(tmp_path: Path, template: Path) -> Iterator[tuple[Pair, int]]:
    """Two workers that have found and approved a Vert.x peer, and the port where it is."""
    port = free_port()
    stub = described(VertxNode.stub, f"ws://127.0.0.1:{port}/ws")
    catalogue = Catalogue({"/b": stub})
    place = tmp_path / "a"
    place.mkdir()
    settings = {"FEDERATION": "open", "FEDERATION_NETWORKS": "127.0.0.0/8", "DOMAIN": A}
    try:
        with running(place, template, **settings) as pair:
            pair.one.manage(
                "peers", "add", B, "--url", f"{catalogue.url}/b", "--hosts", "127.0.0.1"
            )
            yield pair, port
    finally:
        catalogue.stop()


def serves(worker: Node) -> bool:
    """Whether a worker has the link to the peer, which is live."""
    lines = worker.text("/metrics?worker=this").splitlines()
    return any(
        line.startswith("msgnode_peer_state{") and f'"{B}"' in line and '"live"' in line
        for line in lines
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(condition):
            await eventually()


async def until_answered(client: Client, wanted: int, to: str, **more: str) -> None:
    """Ask until the answer has this code; what waited in a killed worker is lost."""
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    if code(await client.ask("read", to, {"value": 1}, **more)) == wanted:
                        return
            await eventually()


async def test_a_visitor_of_a_peers_domain_is_the_same_at_the_worker_without_its_link(
    met: tuple[Pair, int],
) -> None:
    """What it is taken for, answers, while the peer is blocked, and when the other is killed."""
    pair, port = met
    node = VertxNode(port)
    for each in (THEIRS, CAROL):
        node.runtimes[each] = lambda asked: {"code": 200, "value": asked["body"].get("value")}
    await node.start()
    await until(lambda: serves(pair.one) or serves(pair.other))
    owner, other = pair.one, pair.other
    if not await asyncio.to_thread(serves, owner):
        owner, other = other, owner
    refused = {"allOf": {"peer": {"equals": B}, "msgTo": {"equals": OURS}}}
    await asyncio.to_thread(publish, owner, refused)
    told, here = await come(owner, A, "told"), await come(owner, A, "here")
    asker = await come(other, A, "asker")
    assert code(await subscribe(told, A, OURS)) == 200
    answering = [asyncio.create_task(answer_requests(told))]
    visitor = await come(other, B, "carols-own")

    await until_answered(visitor, 200, OURS, sender=CAROL)  # it is no peer for the policies
    await told.send("read", THEIRS, {}, sender=OURS)
    await until(lambda: OURS in node.known)
    async with asyncio.timeout(SECONDS):  # the worker may not have the policy yet
        while not [each for each in node.heard if each["body"].get("code") == 403]:
            request = {"id": uuid4().hex, "type": "read", "from": THEIRS, "to": OURS, "body": {}}
            await node.say(request)
            await eventually()
    assert code(await asker.ask("read", CAROL, {"value": 2})) == 200
    assert [each["from"] for each in node.heard if each["to"] == CAROL] == [asker.runtime_url]
    assert not [each for each in visitor.inbox if each["to"] == CAROL], "that is its node's"

    await asyncio.to_thread(owner.manage, "peers", "block", B)
    for client in (asker, here):
        await until_answered(client, 403, THEIRS)
    await until_answered(visitor, 200, OURS)  # a block is of the node alone
    await asyncio.to_thread(owner.manage, "peers", "resume", B)
    await until_answered(asker, 200, THEIRS)
    await until_answered(visitor, 200, OURS, sender=CAROL)

    owner.kill()
    again = await come(other, A, "again")
    assert code(await subscribe(again, A, f"{OURS}-again")) == 200
    answering.append(asyncio.create_task(answer_requests(again)))
    await until_answered(visitor, 200, f"{OURS}-again", sender=CAROL)
    await until_answered(asker, 200, THEIRS)
    assert await asyncio.to_thread(serves, other)
    for task in answering:
        task.cancel()
    await node.stop()

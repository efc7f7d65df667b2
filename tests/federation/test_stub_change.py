"""Another stub takes the place of one: tried first, without loss, and not if it does not load."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from msgnode.federation.stub import PeerStub, fault_of
from msgnode.sandbox.process import SandboxLimits
from tests.client import code

from .links import OURS, STUB_URL, THEIRS, A, B, Played, linked
from .nodes import TwoNodes, answer_requests, come, subscribe
from .sandboxes import needs_deno, stub

pytestmark = [needs_deno, pytest.mark.asyncio]


def tried(source: str) -> PeerStub:
    at = f"runtime://{A}/mn-1"
    return PeerStub(B, STUB_URL, at, "0" * 64, source, {"url": "ws://127.0.0.1:9/"}, frozenset())


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (stub("resumes"), ""),
        (stub("umd"), ""),
        ("this is no script", "cannot be loaded"),
        ("import 'ws';", "cannot be loaded"),
    ],
)
async def test_case_15_a_stub_is_tried_without_a_socket(source: str, fault: str) -> None:
    found = await fault_of(tried(source), SandboxLimits(silence=12.0), asyncio.Semaphore(1))
    assert fault in found
    assert bool(found) == bool(fault)


async def test_case_15_another_stub_takes_the_place_of_one_and_nothing_is_lost() -> None:
    """What was asked is answered before; what comes meanwhile waits for the other one."""
    late: list[tuple[dict[str, Any], ServerConnection]] = []

    async def answers(message: dict[str, Any], link: ServerConnection) -> None:
        if message["body"]["value"] == 1:
            late.append((message, link))
            return
        await answer(message, link)

    async def answer(message: dict[str, Any], link: ServerConnection) -> None:
        envelope = {"id": message["id"], "type": "response", "from": THEIRS, "to": OURS}
        await link.send(json.dumps({**envelope, "body": {"code": 200}}))

    peer = Played(answers)
    async with linked(stub("resumes"), peer) as one:
        await one.live()
        one.post(1)
        await one.until(lambda: late)
        other = replace(one.link.peer, source=stub("system_register"))
        replacing = asyncio.create_task(one.link.replace(other))
        await one.until(lambda: one.link.state == "replaced")
        one.post(2)
        await answer(*late[0])
        await replacing
        one.post(3)
        await one.until(lambda: len(one.node.said) == 3)
        assert [each["id"] for each in one.node.said] == ["m1", "m2", "m3"]
        assert {each["body"]["code"] for each in one.node.said} == {200}
        assert peer.values == [1, 2, 3]
        assert peer.links[0].close_code == 1000, "the one before has said good-bye"
        assert one.link.exchange.counters.failed == 0


@pytest.fixture
def nodes(tmp_path: Path, template: Path) -> Iterator[TwoNodes]:
    two = TwoNodes(tmp_path / "nodes", template, SANDBOX_SILENCE_SECONDS=12)
    with two.running():
        yield two


_OFFER = """
from hashlib import sha256
from msgnode.models import Peer
stub = Peer.objects.get().stubs.first()
for source in (stub.source + "\\n// the next version", "it cannot be loaded"):
    digest = sha256(source.encode()).hexdigest()
    stub.pk, stub.source, stub.digest = None, source, digest
    stub._state.adding = True
    stub.save()
    print(digest)
"""


@pytest.mark.long
async def test_case_15_an_approved_stub_takes_over_and_one_that_cannot_be_loaded_does_not(
    nodes: TwoNodes,
) -> None:
    asker, answerer = await come(nodes.a, A, "asker"), await come(nodes.b, B, "answerer")
    to = f"hyperty://{B}/one"
    assert code(await subscribe(answerer, B, to)) == 200
    answering = asyncio.create_task(answer_requests(answerer))
    first = nodes.peer()["approved_digest"]
    offered = await asyncio.to_thread(nodes.a.manage, "shell", "-c", _OFFER)
    second, broken = offered.split()[-2:]
    codes: list[int | None] = []

    async def ask() -> None:
        while True:
            codes.append(code(await asker.ask("read", to, {"value": 1})))

    asking = asyncio.create_task(ask())
    before = nodes.sandboxes()
    await asyncio.to_thread(nodes.a.manage, "peers", "approve", B, "--digest", second)
    async with asyncio.timeout(30):
        while any(each.is_running() for each in before):  # noqa: ASYNC110  (a process of the node tells nobody)
            await asyncio.sleep(0.1)
    await asyncio.to_thread(nodes.wait_live)
    now = nodes.sandboxes()
    await asyncio.to_thread(nodes.a.manage, "peers", "approve", B, "--digest", broken)
    await asyncio.to_thread(nodes.wait, lambda peer: peer["approved_digest"] == second)
    assert all(each.is_running() for each in now), "it has gone on"
    assert first != second
    count = len(codes)
    async with asyncio.timeout(10):
        while len(codes) < count + 20:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for task in (asking, answering):
        task.cancel()
    assert set(codes) == {200}, "nobody has noticed"

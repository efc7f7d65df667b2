"""Policies in a running node, over real sockets: what passes, what does not, and what is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.client import DOMAIN, Client, code
from tests.conftest import arriving
from tests.node import Node, running

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("policed")]


@pytest.fixture(scope="module")
def policed(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Node]:
    with running(tmp_path_factory.mktemp("policed"), template) as node:
        yield node


@pytest.fixture
async def pair(policed: Node) -> AsyncIterator[tuple[Client, Client]]:
    async with arriving(policed) as come:
        yield await come(), await come()


async def publish(node: Node, condition: Any, **more: Any) -> None:
    """Have a rule that denies in force, in place of all others."""
    rule = {"effect": "deny", "condition": condition, **more}
    place = node.data_dir / "rules.json"
    place.write_text(json.dumps([{"id": "S", "policies": [{"id": "P", "rules": [rule]}]}]))
    await asyncio.to_thread(node.publish, place, "--replace", "--mode", "enforce")


async def test_a_blocked_request_is_answered_403_in_both_texts_and_nobody_hears_it(
    policed: Node, pair: tuple[Client, Client]
) -> None:
    alice, bob = pair
    secret = f"{bob.runtime_url}/secret"
    for duty, said in (({}, "Blocked by policy"), ({"inform": "Not before 9."}, "Not before 9.")):
        await publish(policed, {"msgTo": {"like": "*/secret"}}, obligations=duty)
        answer = await alice.ask("read", secret)
        assert answer["body"] == {"code": 403, "desc": said, "description": said}
        assert answer["from"] == secret
    assert await bob.received_from(alice) == []


async def test_a_message_waits_for_what_the_registry_knows_and_keeps_its_place(
    policed: Node, pair: tuple[Client, Client]
) -> None:
    duty = {"inform": "Only few are registered."}
    await publish(policed, {"userRegistries": {"lessThan": 5}}, obligations=duty)
    alice, bob = pair
    body = {"value": {"user": "user://idp.example/facts"}}
    first = await alice.send("read", bob.runtime_url, body)
    await alice.send("update", bob.runtime_url, {"value": "second"})
    assert (await alice.answer(first))["body"]["description"] == "Only few are registered."
    assert (await bob.receive())["body"]["value"] == "second"


async def test_a_subscription_is_decided_and_ends_when_its_permission_does(
    policed: Node, pair: tuple[Client, Client]
) -> None:
    await publish(policed, {"subscribeTo": {"like": "comm://*/closed/*"}})
    alice, bob = pair
    feed = f"comm://{DOMAIN}/feed"
    assert code(await bob.subscribe(f"comm://{DOMAIN}/closed/changes")) == 403
    assert code(await bob.subscribe(f"{feed}/changes")) == 200
    await alice.send("update", f"{feed}/changes", {"value": 1}, sender=feed)
    assert (await bob.receive())["body"]["value"] == 1
    await publish(policed, {"subscribeTo": {"like": "comm://*/feed/*"}})
    told = await bob.receive()
    assert (told["to"], told["body"]["value"]) == (f"{bob.runtime_url}/status", "gap")
    await alice.send("update", f"{feed}/changes", {"value": 2}, sender=feed)
    assert await bob.received_from(alice) == []


async def test_publications_under_load_lose_and_misjudge_nothing(
    policed: Node, pair: tuple[Client, Client]
) -> None:
    """Each version blocks one of two addresses; whatever is in force, one of a pair passes."""
    names = ("here", "there")
    await publish(policed, {"msgTo": {"like": "*/here"}})
    alice, bob = pair
    enough = asyncio.Event()
    sent: list[int] = []

    async def talk() -> None:
        began = monotonic()
        while not enough.is_set():
            for name in names * 10:
                sent.append(await alice.send("create", f"{bob.runtime_url}/{name}"))
            await asyncio.sleep(max(0.0, len(sent) / 1000 - (monotonic() - began)))

    talking = asyncio.create_task(talk())
    rounds = 0
    while rounds < 3 or len(sent) < 5000:
        rounds += 1
        await publish(policed, {"msgTo": {"like": f"*/{names[rounds % 2]}"}})
    enough.set()
    await talking
    delivered = {each["id"] for each in await bob.received_from(alice)}
    refused = {each["id"] for each in await alice.settled() if code(each) == 403}
    assert delivered | refused == set(sent)
    assert delivered & refused == set()
    pairs = list(zip(sent[::2], sent[1::2], strict=True))
    uneven = [pair for pair in pairs if (pair[0] in delivered) == (pair[1] in delivered)]
    assert len(uneven) <= rounds

"""A response reaches who asked only from a session that was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client import Client, code
from tests.conftest import Come
from tests.node import Node

from .conftest import Parties

pytestmark = pytest.mark.xdist_group("ownership")

COUNTER = "msgnode_responses_unasked_total"


async def answers(giver: Client, request: dict[str, Any], *codes: int) -> None:
    """Answer a request as a runtime does, once with each code."""
    for each in codes:
        await giver.send("response", request["from"], {"code": each, "value": giver.runtime_url},
                         id=request["id"], sender=request["to"])  # fmt: skip


async def test_a_forged_response_is_dropped_and_counted_and_the_real_one_arrives(
    parties: Parties,
) -> None:
    alice, bob, mallory = [await parties.bring(who) for who in ("alice", "bob", "mallory")]
    (held,) = await alice.allocate()
    before = parties.metric(COUNTER)
    guessed = 0
    for sender in (alice.runtime_url, f"{alice.runtime_url}/registry/", held):
        id_ = await alice.send("read", f"{bob.runtime_url}/sm", sender=sender)
        request = await bob.expect(type="read", id=id_)
        for guess in (id_, str(id_), id_ + 1):
            body = {"code": 200, "value": "forged"}
            await mallory.send("response", sender, body, id=guess, sender=mallory.runtime_url)
            guessed += 1
        assert await alice.received_from(mallory) == []
        await answers(bob, request, 200)
        assert (await alice.answer(id_))["body"]["value"] == bob.runtime_url
    assert parties.metric(COUNTER) == before + guessed


async def test_of_two_tabs_with_the_same_ids_each_gets_its_own_answers(parties: Parties) -> None:
    alice = await parties.bring("alice")
    tabs = [alice, *[await parties.bring("alice", alice.runtime_url) for _ in range(2)]]
    others = [await parties.bring(f"o{number}") for number in range(3)]
    requests = []
    for tab, other in zip(tabs, others, strict=True):
        await tab.send("read", other.runtime_url, id=9)
        requests.append(await other.expect(type="read"))
    for tab, other, request in zip(tabs, others, requests, strict=True):
        if len(parties.nodes) == 1 or tab is tabs[-1]:  # elsewhere the last that asked is known
            await answers(other, request, 200)
            assert (await tab.answer(9))["body"]["value"] == other.runtime_url


async def test_an_answer_finds_who_was_away_and_came_back(parties: Parties) -> None:
    alice, bob, mallory = [await parties.bring(who) for who in ("alice", "bob", "mallory")]
    requests = []
    for number in range(3):
        await alice.send("read", bob.runtime_url, id=number)
        requests.append(await bob.expect(id=number))
    await answers(bob, requests[0], 200)
    assert code(await alice.answer(0)) == 200
    await alice.hang_up()
    await answers(bob, requests[1], 200)
    await mallory.send("response", alice.runtime_url, {"code": 500}, id=1)
    again = await parties.back(alice)
    await answers(bob, requests[2], 200)
    await mallory.send("response", alice.runtime_url, {"code": 500}, id=2)
    for number in (1, 2):
        assert code(await again.answer(number)) == 200
    assert await again.received_from(mallory) == []


@pytest.mark.long
async def test_who_asks_too_much_forgets_the_oldest_of_his_own_requests_only(
    start_node: Callable[..., Node], come: Come
) -> None:
    node = start_node(MAX_OPEN_REQUESTS=10)
    alice, flooder, bob = [await come(to=node) for _ in range(3)]
    await alice.send("read", bob.runtime_url, id="alice's")
    asked = [await bob.expect(id="alice's")]
    for number in range(30):
        await flooder.send("read", bob.runtime_url, id=number)
        asked.append(await bob.expect(id=number))
    for request in asked:
        await answers(bob, request, 200)
    assert code(await alice.answer("alice's")) == 200
    kept = [each["id"] for each in await flooder.received_from(bob)]
    assert kept == list(range(30))[-len(kept) :]
    assert 5 <= len(kept) <= 10
    assert f"{COUNTER} {30 - len(kept)}.0" in node.text("/metrics")


@pytest.mark.long
async def test_the_setting_relaxes_it(start_node: Callable[..., Node], come: Come) -> None:
    node = start_node(STRICT_RESPONSES="false")
    alice, bob = await come(to=node), await come(to=node)
    await bob.send("response", alice.runtime_url, {"code": 200}, id=1)
    assert [each["id"] for each in await alice.received_from(bob)] == [1]


@pytest.mark.long
async def test_an_answer_that_a_restart_has_lost_is_signalled_as_a_gap(
    start_node: Callable[..., Node], come: Come
) -> None:
    node = start_node()
    alice, bob = await come(to=node), await come(to=node)
    await alice.send("read", bob.runtime_url, id=1)
    request = await bob.expect(id=1)
    node.terminate()
    assert node.status() == 0
    node.start()
    async with node.ws() as asks, node.ws() as gives:
        await asks.reopen(alice.runtime_url, alice.token)
        await gives.reopen(bob.runtime_url, bob.token)
        for _ in range(2):
            await answers(gives, request, 200)
        heard = await asks.received_from(gives)
        assert [each["body"].get("value") for each in heard] == ["gap"]

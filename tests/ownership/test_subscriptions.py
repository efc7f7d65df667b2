"""What is addressed to a runtime reaches that runtime; what it publishes reaches who subscribed."""

from __future__ import annotations

import pytest

from tests.client import SM, Client, code

from .conftest import Parties

pytestmark = pytest.mark.xdist_group("ownership")

TAILS = ("status", "x/status", "registration", "x/registration", "children/x", "x/children/")
TYPES = ("create", "read", "update", "execute", "delete", "event")


def twin(url: str) -> str:
    return f"hyperty-{url}"


async def values(client: Client, sender: Client) -> list[str]:
    """What has come, up to now, of what a sender said."""
    return [each["body"].get("value") for each in await client.received_from(sender)]


@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_subscription_takes_nothing_that_is_addressed_to_anothers_runtime(
    parties: Parties, order: str
) -> None:
    mallory, url = await parties.bring("mallory"), parties.url()
    alice = await parties.bring("alice", url) if order == "after" else None
    for tail in TAILS:
        for spelled in (url, twin(url)):
            assert code(await mallory.subscribe(f"{spelled}/{tail}")) in (200, 403)
    both = {"resource": f"{url}/x", "childrenResources": ["status"]}
    await mallory.ask("subscribe", SM, both)
    if alice is None:
        alice = await parties.bring("alice", url)
    talker = await parties.bring("talker")
    sent = []
    for tail in TAILS:
        for spelled in (url, twin(url)):
            for type_ in TYPES:
                sent.append(f"{type_} {spelled}/{tail}")
                await talker.send(type_, f"{spelled}/{tail}", {"value": sent[-1]})
    assert await values(mallory, talker) == []
    assert await values(alice, talker) == sent


async def test_what_is_addressed_to_a_runtime_that_is_away_goes_to_nobody(
    parties: Parties,
) -> None:
    mallory, talker, url = await parties.bring("mallory"), await parties.bring("t"), parties.url()
    for tail in TAILS:
        await mallory.subscribe(f"{url}/{tail}")
    for tail in TAILS:
        assert code(await talker.ask("create", f"{url}/{tail}")) == 404
    assert await values(mallory, talker) == []


async def test_observers_hear_what_a_runtime_publishes_below_itself(parties: Parties) -> None:
    alice, bob = await parties.bring("alice"), await parties.bring("bob")
    for tail in TAILS:
        assert code(await bob.subscribe(f"{alice.runtime_url}/{tail}")) == 200
    sender = f"{alice.runtime_url}/registry/"
    for tail in TAILS:
        await alice.send("update", f"{alice.runtime_url}/{tail}", {"value": tail}, sender=sender)
    assert await values(bob, alice) == list(TAILS)


async def test_nobody_else_publishes_in_the_name_of_an_address(parties: Parties) -> None:
    alice, mallory = await parties.bring("alice"), await parties.bring("mallory")
    bob = await parties.bring("bob")
    (held,), (obj,) = await alice.allocate(), await alice.allocate("comm")
    events = ["registration", "status", "changes"]
    for url in (held, obj, alice.runtime_url):
        assert code(await bob.subscribe(*(f"{url}/{event}" for event in events))) == 200
    for url in (held, obj):
        for event in events:
            answer = await mallory.ask("update", f"{url}/{event}", {"value": "disconnected"})
            assert code(answer) == 403
    for event in events:
        await mallory.send("update", f"{alice.runtime_url}/{event}", {"value": "disconnected"})
    assert await values(bob, mallory) == []
    for url in (held, obj):
        for event in events:
            await alice.send("update", f"{url}/{event}", {"value": event}, sender=url)
    assert await values(bob, alice) == events * 2


async def test_a_runtimes_own_tabs_hear_what_is_sent_to_an_address_they_subscribed(
    parties: Parties,
) -> None:
    alice, talker = await parties.bring("alice"), await parties.bring("talker")
    tab = await parties.bring("alice", alice.runtime_url)
    handler = f"{alice.runtime_url}/p2phandler/1"
    for each in (alice, tab):
        assert code(await each.subscribe(handler)) == 200
    await talker.send("create", handler, {"value": "invitation"}, id="i")
    for each in (alice, tab):
        assert (await each.expect(id="i"))["to"] == handler


async def test_a_claimed_stub_address_is_its_claimants_alone(parties: Parties) -> None:
    alice, mallory = await parties.bring("alice"), await parties.bring("mallory")
    talker = await parties.bring("talker")
    requester = f"runtime://elsewhere.example/p2prequester/{parties.address()[-36:]}"
    assert code(await alice.subscribe(requester)) == 200
    assert code(await mallory.subscribe(requester)) == 403
    assert code(await mallory.subscribe(f"{requester}/status")) == 200
    await talker.send("create", requester, {"value": 1})
    await talker.send("create", f"{requester}/status", {"value": 2})
    await alice.send("update", f"{requester}/status", {"value": 3}, sender=requester)
    assert await values(alice, talker) == [1]
    assert await values(mallory, alice) == [3]

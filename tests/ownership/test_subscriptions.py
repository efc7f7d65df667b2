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

"""Who is logged in at another worker is found before its session is known here."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from channels.layers import InMemoryChannelLayer

from msgnode.core.errors import Unavailable
from msgnode.core.identity import Identity
from msgnode.workers.rpc import IdentityLookup, answer_lookups
from tests.workers.cluster import Fellow, LossyLayer

ALICE = Identity("https://issuer", "alice", username="alice@localhost", groups=("friends",))

Three = tuple[list[IdentityLookup], dict[str, Identity], LossyLayer]


@pytest.fixture
async def three() -> AsyncIterator[Three]:
    """Three workers; by its name, who is logged in at the last."""
    layer, secret = LossyLayer(InMemoryChannelLayer()), uuid.uuid4().hex
    there: list[Fellow] = []
    for name in "abc":
        there.append(await Fellow(layer, name, secret).start(*there))
    known: dict[str, Identity] = {}
    finders = [lambda name: None, lambda name: None, known.get]
    pairs = zip(there, finders, strict=True)
    for each, find in pairs:
        answer_lookups(each.rpc, find)
    yield [IdentityLookup(each.transport, each.rpc) for each in there], known, layer
    await asyncio.gather(*(each.transport.stop() for each in there))


async def test_w4_whoever_is_logged_in_at_another_worker_is_found_and_nobody_else(
    three: Three,
) -> None:
    lookups, known, _ = three
    assert await lookups[0].find("alice@localhost") is None
    known["alice@localhost"] = ALICE
    assert await lookups[0].find("alice@localhost") == ALICE
    assert await lookups[1].find("alice@localhost") == ALICE
    assert await lookups[0].find("bob@localhost") is None


async def test_w4_while_a_worker_does_not_answer_it_is_not_known_that_nobody_is_there(
    three: Three,
) -> None:
    lookups, known, layer = three
    layer.loses = lambda message: "number" in message
    with pytest.raises(Unavailable):
        await lookups[0].find("bob@localhost")

"""Every message arrives once and in order: thousands in a pipeline, by both handshakes.

The sender is faster than its rate allows; it is held back, and nothing of what it sent is lost.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.client import SM, address, code
from tests.conftest import Come
from tests.length import length

pytestmark = pytest.mark.long

BOTH = pytest.mark.parametrize("handshake", ["ws", "stub"])
MESSAGES = length(2_000, full=10_000)
SECONDS = 90.0


@pytest.mark.parametrize(
    "size",
    [
        100,
        1_000,
        10_000,
    ],
)
@BOTH
async def test_thousands_of_messages_arrive_once_and_in_order(
    come: Come, handshake: str, size: int
) -> None:
    sender, target = await come(handshake=handshake), await come(handshake=handshake)
    (held,) = await target.allocate()
    head = f'"type":"create","from":"{sender.runtime_url}","to":"{held}"'
    filling = "x" * size

    async def pour() -> None:
        for number in range(MESSAGES):
            body = f'{{"value":{number},"filling":"{filling}"}}'
            await sender.socket.send(f'{{"id":{number},{head},"body":{body}}}')

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(SECONDS):
        for number in range(MESSAGES):
            frame = json.loads(await target.socket.recv())
            assert (frame["id"], frame["body"]["value"]) == (number, number)
            assert len(frame["body"]["filling"]) == size
        await pouring
    assert await target.received_from(sender) == []
    assert await sender.settled() == []


async def test_a_hundred_observers_get_each_update_once_and_in_order(come: Come) -> None:
    reporter = await come()
    (obj,) = await reporter.allocate("comm")
    observers = [await come() for _ in range(100)]
    for each in observers:
        await each.subscribe(f"{obj}/changes")
    for number in range(100):
        await reporter.send("update", f"{obj}/changes", {"value": number}, sender=obj)
    for each in observers:
        arrived = await each.received_from(reporter)
        assert [frame["body"]["value"] for frame in arrived] == list(range(100))


async def test_requests_in_a_pipeline_are_each_answered_once(come: Come) -> None:
    client = await come()
    own = [address() for _ in range(600)]
    ids = [await client.send("subscribe", SM, {"resources": [each]}) for each in own]
    answers = [await client.answer(each) for each in ids]
    assert {code(each) for each in answers} == {200}
    assert await client.settled() == []

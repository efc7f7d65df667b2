"""What a node, a reporter or an observer can do wrong."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from peers import FakeNode, Peer, settled, soon
from sharing import Message, numbered, shared

from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.syncher import Syncher


async def test_lies_are_not_believed(node: FakeNode, alice: Peer, bob: Peer) -> None:
    made, copy = await shared(alice, bob)
    for sender in ("hyperty://d/eve", f"{made.url}0"):
        bob.bus.receive({**numbered(made, 1), "from": sender}, bob.stub)
    bob.bus.receive(numbered(made, 1), "runtime://evil/protostub/1")
    bob.bus.receive({**numbered(made, 1), "type": "delete", "from": "hyperty://d/eve"}, bob.stub)
    await settled()
    assert (copy.data["title"], copy.status) == ("Picnic", "live")
    assert bob.bus.counters["data.forged"] == 4
    for n in range(5):
        made.data["title"] = f"v{n}"
    await settled()
    for version in (0, 3, 5, -1, 1.5, "6", None, True, float("inf")):
        bob.bus.receive(numbered(made, version), bob.stub)
    await settled()
    assert (copy.data["title"], copy.version) == ("v4", 5)
    for n in range(500):
        bob.bus.receive(numbered(made, 2**53 - 1 - n), bob.stub)
    await asyncio.sleep(0.1)
    assert len(node.sent("read", made.url)) <= 4
    assert copy.data == made.data
    assert copy.version == made.version


@pytest.mark.parametrize(
    "change",
    [
        {"attribute": "no.such.path", "value": 1},
        {"attribute": "guests.9", "value": 1},
        {"attribute": "__proto__.x", "value": 1},
        {"attribute": "guests.0", "attributeType": "array", "operation": "remove", "value": 1e9},
        {"attribute": "guests.0", "attributeType": "array", "operation": "add", "value": "text"},
        {"attribute": 7},
        {},
    ],
)
async def test_a_change_that_does_not_fit_is_none_and_the_object_is_read(
    change: Message, node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    told = {**numbered(made, 1), "body": {"version": 1, **change}}
    bob.bus.receive(told, bob.stub)
    await soon(lambda: node.sent("read", made.url) and copy.version == made.version)
    assert copy.data == made.data


async def test_a_reporter_cannot_fill_an_observers_memory(alice: Peer, bob: Peer) -> None:
    made, copy = await shared(alice, bob)
    for n in range(1, 21):
        change = {"attribute": f"k{n}", "value": "x" * 200_000}
        bob.bus.receive(numbered(made, n, **change), bob.stub)
    await soon(lambda: copy.data == made.data)


async def test_a_remote_runtime_cannot_have_this_one_create_observe_or_delete(
    alice: Peer, bob: Peer
) -> None:
    made, _ = await shared(alice, bob)
    asked: list[tuple[str, Message]] = [
        ("create", {"value": {"data": {}}}),
        ("subscribe", {"resource": made.url}),
        ("delete", {"resource": made.url}),
    ]
    for kind, body in asked:
        message: Message = {
            "type": kind,
            "from": bob.hyperty,
            "to": f"{alice.url}/sm",
            "body": body,
        }
        assert (await bob.bus.request(message))["body"]["code"] == 403
    eve = Syncher(alice, "hyperty://d/eve")
    for syncher, code in ((eve, 403), (alice.syncher, 409)):
        with pytest.raises(SyncError) as refused:
            await syncher.create({}, url=made.url)
        assert refused.value.code == code


async def test_what_is_no_data_is_refused_and_changes_nothing(alice: Peer, bob: Peer) -> None:
    made, copy = await shared(alice, bob)
    data = made.data
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    wrong = [object(), float("nan"), b"x", {1}, datetime.date.today(), loop, {"a.b": 1}, {1: 2}]  # noqa: DTZ011
    wrong += ["half a pair: \ud83d", {"\ude00": 1}]
    for value in wrong:
        with pytest.raises(TypeError):
            data["title"] = value
        with pytest.raises(TypeError):
            await alice.syncher.create({"value": value})
    with pytest.raises(TypeError):
        data["a.b"] = 1
    with pytest.raises(IndexError):
        data["guests"][9] = 1
    with pytest.raises(OverflowError):
        data["title"] = "x" * 600_000
    with pytest.raises(TypeError):
        copy.data["title"] = "mine"
    with pytest.raises(TypeError):
        copy.data["guests"].append("Bob")
    part = data["at"]
    data["at"] = {"place": {"name": "lake"}}
    with pytest.raises(TypeError):
        part["place"] = 1
    await settled()
    assert data["title"] == "Picnic"
    assert copy.data == data
    with pytest.raises(ValueError, match="no address"):
        await bob.syncher.subscribe("nonsense")


@pytest.mark.parametrize(
    "value",
    [
        "text",
        [1],
        {"data": "text"},
        {"data": {}, "childrenObjects": {"a": 5}},
        {"data": {}, "childrenObjects": {"": {"value": 1}}},
        {"data": {}, "childrenObjects": {str(n): {"value": n} for n in range(10_001)}},
    ],
    ids=lambda value: str(value)[:40],
)
async def test_who_is_told_no_data_object_gets_502_and_observes_nothing(
    value: Any, node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 1})
    hand = node.hand

    def lie(peer: Peer, message: Message) -> None:
        is_answer = message["type"] == "response" and message["from"].endswith("/subscription")
        hand(peer, {**message, "body": {"code": 200, "value": value}} if is_answer else message)

    node.hand = lie  # type: ignore[method-assign]
    with pytest.raises(SyncError) as error:
        await bob.syncher.subscribe(made.url)
    assert error.value.code == 502
    assert node.subscribers[f"{made.url}/changes"] == []
    node.hand = hand  # type: ignore[method-assign]
    assert (await bob.syncher.subscribe(made.url)).data == {"n": 1}

"""Who is invited, who is admitted, and the children that observers add."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import FakeNode, Peer, settled
from sharing import shared

from msgnode.runtime.python.syncher import talk
from msgnode.runtime.python.syncher.errors import SyncError


async def test_who_is_invited_may_say_no_and_who_says_yes_is_admitted(
    alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 1}, name="room")
    made.on_subscription(lambda _: False)
    assert await made.invite(bob.hyperty) == {bob.hyperty: 404}
    heard: list[Any] = []
    answers = [False, None]

    async def judge(invitation: Any) -> bool | None:
        heard.append(invitation)
        return answers.pop(0)

    await bob.syncher.on_invitation(judge)
    assert await made.invite([bob.hyperty]) == {bob.hyperty: 403}
    assert await made.invite([bob.hyperty]) == {bob.hyperty: 200}
    told = heard[1]
    assert (told["url"], told["name"], told["from"]) == (made.url, "room", alice.hyperty)
    assert (await bob.syncher.subscribe(made.url)).data == {"n": 1}


async def test_a_person_may_think_for_a_while(
    alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "PATIENCE", 0.01)
    made = await alice.syncher.create({"n": 1})
    decided = asyncio.Event()

    async def judge(_: Any) -> None:
        await decided.wait()

    await bob.syncher.on_invitation(judge)
    assert await made.invite(bob.hyperty) == {bob.hyperty: 408}
    monkeypatch.setattr(talk, "MOST_PATIENCE", 100_000)
    made.on_subscription(judge)
    subscribing = asyncio.create_task(bob.syncher.subscribe(made.url))
    await asyncio.sleep(0.05)
    assert not subscribing.done()
    decided.set()
    assert (await subscribing).data == {"n": 1}


async def test_children_are_the_same_everywhere_and_each_is_told_once(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    carol = await node.peer().syncher.subscribe(made.url)
    told: list[list[Any]] = [[], [], []]
    made.on_child(told[0].append)
    copy.on_child(told[1].append)
    carol.on_child(told[2].append)
    one = await copy.add_child({"text": "hello"})
    await made.add_child({"text": "welcome"})
    await copy.update_child(one, {"text": "hello!"})
    await made.remove_child(one)
    await settled()
    texts = [(event.type, event.value["text"]) for event in told[0]]
    assert texts == [
        ("create", "hello"),
        ("create", "welcome"),
        ("update", "hello!"),
        ("delete", "hello!"),
    ]
    assert told[1] == told[2] == told[0]
    assert copy.children == carol.children == made.children


async def test_a_child_is_its_makers_and_nobody_adds_one_who_does_not_observe(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    others = await node.peer().syncher.subscribe(made.url)
    id_ = await copy.add_child({"text": "mine"})
    eve = node.peer()

    async def asks(kind: str, to: str, **body: Any) -> int:
        message = {"type": kind, "from": eve.hyperty, "to": to, "body": body}
        return int((await eve.bus.request(message))["body"]["code"])

    for asking, code in (
        (others.update_child(id_, {}), 403),
        (others.remove_child(id_), 403),
        (copy.update_child("none", {}), 404),
        (copy.add_child({}, "__proto__"), 400),
        (copy.add_child("x" * 700_000), 413),
    ):
        with pytest.raises(SyncError) as refused:
            await asking
        assert refused.value.code == code
    assert await asks("create", f"{made.url}/children/", resource="spam", value={}) == 403
    assert await asks("read", made.url) == 403
    await settled()
    assert copy.children == others.children == made.children

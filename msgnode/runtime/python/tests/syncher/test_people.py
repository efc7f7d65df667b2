"""Who is invited, who is admitted, and the children that observers add."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import FakeNode, Peer, settled, soon
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


async def test_who_asks_in_an_observers_name_from_another_runtime_is_judged(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    asked: list[Any] = []

    def refuse(who: Any) -> bool:
        asked.append(who)
        return False

    made.on_subscription(refuse)
    eve = node.peer()
    body = {"subscriber": bob.hyperty, "source": bob.hyperty, "identity": "Eve's"}
    head = {"type": "subscribe", "from": f"{eve.url}/sm", "to": f"{made.url}/subscription"}
    answer = await eve.bus.request({**head, "body": body})
    assert answer["body"]["code"] == 403
    assert asked == [{"hyperty": bob.hyperty, "identity": "Eve's", "isAsserted": False}]
    read = await eve.bus.request({"type": "read", "from": f"{eve.url}/sm", "to": made.url})
    assert read["body"]["code"] == 403
    bob.say("gap")
    made.data["title"] = "still Bob's"
    await soon(lambda: copy.data == made.data)
    assert made.observers == [bob.hyperty]


async def test_who_may_read_is_decided_at_leisure_and_then_told_however_large_it_is(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, _ = await shared(alice, bob)
    for _ in range(30):
        await made.add_child("x" * 50_000)
    request = {"type": "read", "from": node.peer().hyperty, "to": made.url}
    carol = node.peers[-1]

    async def admit(_: Any) -> bool:
        return True

    def fail(_: Any) -> bool:
        raise SyncError(404, "This one knows no object.")

    made.on_read(admit)
    value = await talk.ask_in_parts(carol.bus, request)
    assert len(value["childrenObjects"]) == 30
    made.on_read(fail)
    with pytest.raises(SyncError, match="knows no object") as error:
        await talk.ask_in_parts(carol.bus, request)
    assert error.value.code == 404


async def test_who_changes_the_child_he_was_given_and_says_so_is_heard(
    alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    heard: list[Any] = []
    made.on_child(heard.append)
    await made.add_child({"text": "one", "by": ["Ann"]})
    await settled()
    for side in (made, copy):
        (child,) = side.children
        child.value["by"].append("Ben")
        heard[0].value["text"] = "spoilt"
        assert side.children[0].value == {"text": "one", "by": ["Ann"]}
    await made.update_child(child.id, child.value)
    await settled()
    assert made.children[0].value == copy.children[0].value == child.value


async def test_a_coroutine_that_listens_hears_one_event_after_the_other(
    alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob, {"n": 0})
    heard: list[int] = []
    free = asyncio.Event()

    async def listen(change: Any) -> None:
        if change["value"] == 1:
            await free.wait()
        if change["value"] == 2:
            raise ValueError("This one fails.")
        heard.append(change["value"])

    listening = copy.on_change(listen)
    for n in range(1, 6):
        made.data["n"] = n
    await settled()
    assert heard == []
    free.set()
    await settled()
    assert heard == [1, 3, 4, 5]
    assert [fault.reason for fault in bob.faults] == ["listener.failed"]
    free.clear()
    for n in range(1, 2_003):
        made.data["n"] = 1 if n == 1 else n + 2
    await settled()
    assert {fault.reason for fault in bob.faults} == {"listener.failed", "listener.flood"}
    listening.remove()
    free.set()
    await settled()
    assert heard == [1, 3, 4, 5, 1]

"""Cases R58 to R65: objects and their changes, as reporter and observers see them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from peers import SM, FakeNode, Peer, settled, soon
from sharing import Message, numbered, shared

from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.syncher import Syncher


@pytest.mark.parametrize(
    ("schema", "scheme"),
    [("https://c/Communication", "comm"), ("Connection", "connection"), ("", "resource")],
)
async def test_r58_a_created_object_is_claimed_at_the_node_for_its_reporter(
    node: FakeNode, alice: Peer, schema: str, scheme: str
) -> None:
    made = await alice.syncher.create({}, schema=schema)
    assert made.url.startswith(f"{scheme}://d/")
    claims = [(each["from"], each["body"]) for each in node.sent("subscribe", SM)][1:]
    sm, source, url = f"{alice.url}/sm", alice.hyperty, made.url
    assert [(sender, body["resources"], body["source"]) for sender, body in claims] == [
        (sm, [url, f"{url}/subscription"], source),
        (sm, [f"{url}/children/"], source),
    ]
    (registered,) = node.sent("create", "domain://registry.d")
    assert registered["body"]["value"]["reporter"] == alice.hyperty


async def test_r59_without_routing_and_registration_nobody_outside_hears_of_it(
    node: FakeNode, alice: Peer
) -> None:
    made = await alice.syncher.create({"n": 1}, domain_routing=False)
    other = Syncher(alice, "hyperty://d/other")
    copy = await other.subscribe(made.url)
    made.data["n"] = 2
    await settled()
    assert copy.data == {"n": 2}
    assert not [each for each in node.seen if made.url in str(each)]
    await alice.syncher.create({}, domain_registration=False)
    assert node.sent("create", "domain://registry.d") == []


async def test_r60_updates_amid_the_subscription_are_applied_once_if_they_are_newer(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"title": "a"})
    made.data["title"] = "b"
    decided = asyncio.Event()

    async def judge(_: Any) -> None:
        await decided.wait()

    made.on_subscription(judge)
    subscribing = asyncio.create_task(bob.syncher.subscribe(made.url))
    await settled()
    made.data["title"] = "c"
    decided.set()
    await asyncio.sleep(0)
    made.data["title"] = "d"
    copy = await subscribing
    await settled()
    assert (copy.data["title"], copy.version) == ("d", 3)
    bob.bus.receive(numbered(made, 2), bob.stub)
    await settled()
    assert copy.data["title"] == "d"


async def test_r61_what_is_missing_is_read_and_what_changed_places_is_applied_in_order(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob, {"title": "0", "list": []})
    seen: list[Any] = []
    copy.on_change(lambda change: seen.append(change["value"]))
    held: list[Message] = []

    def hold(message: Message) -> int:
        if message["to"] != f"{made.url}/changes":
            return 1
        held.append(message)
        return 0

    node.copies = hold
    for n in range(1, 5):
        made.data["title"] = str(n)
    await settled()
    node.copies = lambda _: 1
    for index in (0, 2, 1):
        bob.bus.receive(held[index], bob.stub)
    await settled()
    assert (seen, node.sent("read", made.url)) == (["1", "2", "3"], [])
    made.data["list"].append(1)
    await settled()
    assert copy.version == 3
    await soon(lambda: copy.version == 5)
    assert len(node.sent("read", made.url)) == 1
    assert copy.data == made.data


async def test_r62_who_is_refused_is_told_403_and_hears_nothing(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 0})

    async def later(_: Any) -> bool:
        return False

    for judge in (lambda _: False, later):
        made.on_subscription(judge)
        with pytest.raises(SyncError) as refused:
            await bob.syncher.subscribe(made.url)
        assert refused.value.code == 403
    assert node.subscribers[f"{made.url}/changes"] == []
    with pytest.raises(SyncError) as unknown:
        await bob.syncher.subscribe("comm://d/nothing")
    assert unknown.value.code == 404


async def test_r63_who_leaves_is_off_the_lists_and_hears_no_more(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    assert made.observers == [bob.hyperty]
    for n in range(50):
        made.data["title"] = str(n)
    leaving = asyncio.create_task(copy.unsubscribe())
    for n in range(50):
        made.data["title"] = str(n)
        await asyncio.sleep(0)
    await leaving
    await settled()
    (left,) = node.sent("unsubscribe", SM)
    assert left["body"]["resources"] == [f"{made.url}/changes", f"{made.url}/children/"]
    assert (made.observers, copy.status, bob.faults, alice.faults) == ([], "ended", [], [])
    assert await bob.syncher.subscribe(made.url) is not copy


async def test_r64_every_way_to_change_an_object_reaches_the_observers(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    rows = [{"n": 1}, {"n": 2}]
    data = {"title": "a", "list": [1, 2, 3, 4, 5], "deep": {"er": {"name": "x"}, "rows": rows}}
    made, copy = await shared(alice, bob, data)
    it = made.data
    ways: list[Callable[[], object]] = [
        lambda: it["list"].insert(1, "in"),
        lambda: it["list"].extend(["a", "b"]),
        lambda: it["list"].__delitem__(slice(2, 4)),
        lambda: it["list"].pop(),
        lambda: it["list"].pop(0),
        lambda: it.pop("title"),
        lambda: it["deep"]["er"].update(name="y"),
        lambda: it["list"].__setitem__(0, {"now": "a dict"}),
        lambda: it["list"][0].update(now=None),
        lambda: it["list"].__setitem__(slice(0, 2), [1, 2, 3]),
        lambda: it["list"].sort(key=str, reverse=True),
        lambda: it["list"].reverse(),
        lambda: it["deep"]["rows"][-1].update(n=20),
        lambda: [row.update(n=row["n"] + 1) for row in it["deep"]["rows"]],
        lambda: it.update(fresh={"list": [[1], [2]]}),
        lambda: it["fresh"]["list"][1].append(3),
        lambda: it["list"].clear(),
        lambda: it["list"].append(True),
    ]
    for way in ways:
        way()
        await settled()
        assert copy.data == made.data
        assert copy.version == made.version
    assert node.sent("read", made.url) == []


async def test_random_changes_arrive_whatever_is_doubled_late_or_lost(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob, {"list": [], "map": {}})
    chance = random.Random(7)
    late: list[Message] = []

    def fate(message: Message) -> int:
        if message["to"] != f"{made.url}/changes":
            return 1
        die = chance.randrange(10)
        if die == 1:
            late.append(message)
        return {0: 0, 1: 0, 2: 2}.get(die, 1)

    node.copies = fate
    for n in range(300):
        items, names = made.data["list"], made.data["map"]
        die = chance.randrange(4)
        if die == 0:
            items.append({"n": n})
        elif die == 1 and items:
            del items[chance.randrange(len(items))]
        elif die == 2:
            names[f"k{chance.randrange(20)}"] = {"n": n}
        else:
            names.pop(f"k{chance.randrange(20)}", None)
        if chance.randrange(4) == 0:
            for each in late:
                bob.bus.receive(each, bob.stub)
            late.clear()
        if n % 10 == 0:
            await asyncio.sleep(0.01)
    node.copies = lambda _: 1
    made.data["end"] = True
    await soon(lambda: copy.version == made.version and copy.data == made.data)


async def test_r65_a_large_object_is_read_in_parts_and_a_missing_part_is_noticed(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"title": "big"})
    for n in range(20):
        await made.add_child({"n": n, "text": "x" * 10_000})
    copy = await bob.syncher.subscribe(made.url)
    assert copy.children == made.children
    is_part = lambda each: each["type"] == "response" and each["from"] == made.url  # noqa: E731
    parts = [each["body"] for each in node.seen if is_part(each) and each["to"] == bob.hyperty]
    assert parts[0]["code"] == 100
    assert parts[0]["value"]["responses"] == len(parts) > 3
    dropped: list[Message] = []

    def drop_one(message: Message) -> int:
        is_second = is_part(message) and "responses" not in message["body"]["value"]
        if is_second and not dropped:
            dropped.append(message)
            return 0
        return 1

    node.copies = drop_one
    with pytest.raises(SyncError) as missing:
        await node.peer().syncher.subscribe(made.url)
    assert missing.value.code == 502

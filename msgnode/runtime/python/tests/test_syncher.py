"""Data objects: reporter, observers, and what a node, a reporter or an observer can do wrong."""

from __future__ import annotations

import asyncio
import datetime
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from peers import SM, FakeNode, Peer, settled, soon

from msgnode.runtime.python.syncher import follower, talk
from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.observer import DataObjectObserver
from msgnode.runtime.python.syncher.reporter import DataObjectReporter
from msgnode.runtime.python.syncher.syncher import Syncher

Message = dict[str, Any]
PICNIC = {"title": "Picnic", "guests": ["Ann", "Ben"], "at": {"place": {"name": "park"}}}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are hundredths of one."""
    for name in ("GAP_SECONDS", "READ_EVERY", "LEAST_RETRY"):
        monkeypatch.setattr(follower, name, getattr(follower, name) / 50)
    monkeypatch.setattr(follower, "MOST_RETRY", 0.1)


@pytest.fixture
async def node() -> AsyncIterator[FakeNode]:
    made = FakeNode()
    yield made
    for peer in made.peers:
        peer.close()
    await settled()


@pytest.fixture
async def alice(node: FakeNode) -> Peer:
    return node.peer()


@pytest.fixture
async def bob(node: FakeNode, alice: Peer) -> Peer:
    return node.peer()


async def shared(
    alice: Peer, bob: Peer, data: dict[str, Any] | None = None
) -> tuple[DataObjectReporter, DataObjectObserver]:
    made = await alice.syncher.create(PICNIC if data is None else data)
    return made, await bob.syncher.subscribe(made.url)


def numbered(made: DataObjectReporter, version: Any, **more: Any) -> Message:
    body = {"version": version, "attribute": "title", "value": f"t{version}", **more}
    to = f"{made.url}/changes"
    return {"id": 1000, "type": "update", "from": made.url, "to": to, "body": body}


def losing(made: DataObjectReporter) -> Callable[[Message], int]:
    return lambda message: 0 if message["to"] == f"{made.url}/changes" else 1


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
    wrong = (object(), float("nan"), b"x", {1}, datetime.date.today(), loop, {"a.b": 1}, {1: 2})  # noqa: DTZ011
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


async def test_r52_after_a_gap_and_after_a_connection_came_back_the_object_is_read(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    for words in (("gap",), ("disconnected", "live")):
        node.copies = losing(made)
        made.data["title"] = f"lost before {words[0]}, and nothing after it"
        await settled()
        node.copies = lambda _: 1
        for word in words:
            bob.say(word)
            await settled()
        await soon(lambda: copy.data == made.data and copy.status == "live")


async def test_a_reporter_whose_connection_broke_repeats_the_last_change(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    changes: list[Any] = []
    copy.on_change(changes.append)
    node.copies = losing(made)
    made.data["title"] = "lost on the way out"
    await settled()
    node.copies = lambda _: 1
    for word in ("disconnected", "live", "disconnected", "live"):
        alice.say(word)
    await settled()
    assert len(changes) == 1
    assert node.sent("read", made.url) == []
    assert copy.data == made.data


async def test_a_reporter_that_is_away_leaves_the_copy_and_is_read_when_he_is_back(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, copy = await shared(alice, bob)
    statuses: list[str] = []
    copy.on_status(statuses.append)
    del node.subscribers[made.url]
    bob.say("gap")
    await soon(lambda: copy.status == "disconnected")
    node.copies = losing(made)
    made.data["title"] = "back"
    await settled()
    node.copies = lambda _: 1
    assert copy.data["title"] == "Picnic"
    node.subscribers[made.url] = [alice]
    await soon(lambda: copy.status == "live")
    assert copy.data == made.data
    assert statuses == ["disconnected", "live"]


async def test_a_reporter_that_was_started_anew_goes_on_where_its_storage_says(
    node: FakeNode, bob: Peer
) -> None:
    storage: dict[str, str] = {}
    carol = node.peer(storage)
    made = await carol.syncher.create({"n": 0}, name="kept", store=True)
    copy = await bob.syncher.subscribe(made.url)
    for n in range(1, 6):
        made.data["n"] = n
    id_ = await copy.add_child({"text": "kept too"})
    await settled()
    carol.close()
    node.peers.remove(carol)
    for known in node.subscribers.values():
        if carol in known:
            known.remove(carol)
    again = node.peer(storage)
    syncher = Syncher(again, carol.hyperty)
    (resumed,) = await syncher.resume(name="kept")
    assert resumed.data == {"n": 5}
    assert (resumed.url, resumed.version) == (made.url, made.version)
    assert [each.id for each in resumed.children] == [id_]
    assert resumed.observers == [bob.hyperty]
    resumed.data["n"] = 6
    await soon(lambda: copy.data == {"n": 6})
    await resumed.delete()
    await soon(lambda: copy.status == "ended")
    assert storage == {"msgnode.objects.d": "[]"}


async def test_a_reporter_that_began_anew_is_noticed_at_its_first_change(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob, {"n": 0})
    for n in range(30):
        made.data["n"] = n + 1
    await settled()
    node.copies = lambda _: 0  # she is killed, and says nothing any more
    alice.close()
    await settled()
    node.copies = lambda _: 1
    for known in node.subscribers.values():
        if alice in known:
            known.remove(alice)
    carol = node.peer()
    anew = await carol.syncher.create({"n": "new"}, url=made.url)
    await asyncio.sleep(0.01)  # changes are dated to the millisecond
    anew.data["more"] = 1
    await soon(lambda: copy.data == {"n": "new", "more": 1})
    assert anew.observers == [bob.hyperty]


async def test_what_a_node_held_for_a_stub_that_was_started_anew_is_subscribed_again(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, _ = await shared(alice, bob)
    before = {each: len(found) for each, found in node.subscribers.items()}
    for peer in (alice, bob):
        peer.say("live")
    await settled()
    node.subscribers.clear()
    for peer in (alice, bob):
        peer.say("created")
    await settled()
    assert {each: len(found) for each, found in node.subscribers.items()} == before
    assert made.url in before


async def test_the_end_of_an_object_is_told_and_its_address_is_free(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    await made.delete()
    await soon(lambda: copy.status == "ended")
    with pytest.raises(TypeError):
        made.data["title"] = "too late"
    for asking in (copy.add_child({}), bob.syncher.subscribe(made.url)):
        with pytest.raises(SyncError) as gone:
            await asking
        assert gone.value.code == 404
    assert node.subscribers[made.url] == []


async def test_the_end_of_a_runtime_that_reported_is_told_unless_it_keeps_the_object(
    alice: Peer, bob: Peer
) -> None:
    _, copy = await shared(alice, bob)
    kept = await bob.syncher.subscribe((await alice.syncher.create({}, store=True)).url)
    with pytest.raises(SyncError) as refused:
        await alice.syncher.create({}, scheme="a b")
    assert refused.value.code == 400
    alice.close()
    await settled()
    assert (copy.status, kept.status) == ("ended", "live")


async def test_an_observer_that_is_refused_for_now_goes_on_hearing_and_is_admitted_later(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob, {"n": 0})
    made.on_subscription(lambda _: False)
    body = {"type": "unsubscribe", "from": bob.hyperty}
    head = {"type": "forward", "from": made.url, "to": alice.hyperty}
    await alice.bus.request({**head, "body": body})
    bob.say("gap")
    await soon(lambda: copy.status == "disconnected")
    assert bob in node.subscribers[f"{made.url}/changes"]
    made.on_subscription(lambda asked: asked["isAsserted"] is False)
    await soon(lambda: copy.status == "live")
    made.data["n"] = 1
    await settled()
    assert copy.data == {"n": 1}


async def test_an_observer_that_was_started_anew_in_its_runtime_observes_what_it_did(
    alice: Peer, bob: Peer
) -> None:
    made, _ = await shared(alice, bob)
    (copy,) = await Syncher(bob, bob.hyperty).resume_observers()
    made.data["title"] = "again"
    await settled()
    assert copy.data == made.data
    nobody = Syncher(bob, "hyperty://d/none")
    assert await nobody.resume() == []
    assert await nobody.resume_observers() == []


async def test_hyperties_of_one_runtime_and_a_listener_that_raises(alice: Peer, bob: Peer) -> None:
    made = await alice.syncher.create({"n": 0})
    synchers = [Syncher(alice, "hyperty://d/one"), Syncher(alice, "hyperty://d/two"), bob.syncher]
    copies = await asyncio.gather(*(each.subscribe(made.url) for each in synchers))

    def broken(_: Any) -> None:
        raise RuntimeError("mine")

    copies[0].on_change(broken)
    made.data["n"] = 1
    await copies[0].add_child({"text": "hi"})
    await settled()
    assert [(copy.data["n"], len(copy.children), copy.version) for copy in copies] == [
        (1, 1, 2)
    ] * 3
    assert {fault.reason for fault in alice.faults} == {"listener.failed"}
    await copies[0].unsubscribe()
    made.data["n"] = 2
    await settled()
    assert [copy.data["n"] for copy in copies] == [1, 2, 2]

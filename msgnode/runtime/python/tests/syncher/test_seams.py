"""Data objects where two sides meet: one hyperty on both, an address used again, order, end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from peers import FakeNode, Peer, settled, soon

from msgnode.runtime.python.syncher import follower
from msgnode.runtime.python.syncher.changes import MOST_NUMBER, apply_change
from msgnode.runtime.python.syncher.children import Children
from msgnode.runtime.python.syncher.errors import BadChange, SyncError
from msgnode.runtime.python.syncher.syncher import Syncher
from msgnode.runtime.python.syncher.talk import ask_in_parts


async def test_who_observes_his_own_object_goes_on_reporting_when_he_observes_no_longer(
    alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 0})
    own = await alice.syncher.subscribe(made.url)
    made.data["n"] = 1
    await made.add_child("mine")
    await settled()
    assert own.data == {"n": 1}
    assert (len(own.children), own.version) == (1, 2)
    await own.unsubscribe()
    copy = await bob.syncher.subscribe(made.url)
    await copy.add_child("Bob's")
    made.data["n"] = 2
    await soon(lambda: copy.data == {"n": 2})
    assert [each.value for each in copy.children] == ["mine", "Bob's"]
    assert own.data == {"n": 1}
    again = await alice.syncher.subscribe(made.url)
    await made.delete()
    await soon(lambda: (again.status, copy.status) == ("ended", "ended"))


async def test_no_data_is_deeper_than_others_can_read_however_it_became_so(
    alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"list": []})
    part: Any = made.data

    def deeper() -> None:
        nonlocal part
        part["a"] = {}
        part = part["a"]

    def longer() -> None:
        nonlocal part
        part.append([])
        part = part[0]

    for step, start in ((deeper, made.data), (longer, made.data["list"])):
        part = start
        with pytest.raises(TypeError, match="100 layers"):
            for _ in range(200):
                step()
    copy = await bob.syncher.subscribe(made.url)
    assert copy.data == made.data


@pytest.mark.parametrize(
    ("attribute", "more", "layers"),
    [
        ("a.b", {}, 99),
        ("a.b.0", {"attributeType": "array", "operation": "add"}, 99),
        ("b", {}, 5_000),
        ("__proto__", {}, 1),
        ("a.__class__.x", {}, 1),
    ],
)
def test_a_change_that_makes_data_too_deep_or_has_a_bad_name_is_none(
    attribute: str, more: dict[str, Any], layers: int
) -> None:
    data: dict[str, Any] = {"a": {}}
    apply_change(data, {"attribute": "a.b", "value": nested(98)})
    with pytest.raises(BadChange):
        apply_change(data, {"attribute": attribute, "value": nested(layers), **more})
    assert data == {"a": {"b": nested(98)}}


def nested(layers: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(layers - 1):
        value = [value]
    return value


async def test_an_integer_that_javascript_would_change_is_refused(alice: Peer) -> None:
    made = await alice.syncher.create({"n": MOST_NUMBER, "least": -MOST_NUMBER})
    for value in (MOST_NUMBER + 1, -MOST_NUMBER - 1, [10**400]):
        with pytest.raises(TypeError, match="text"):
            made.data["n"] = value
    assert made.data["n"] == MOST_NUMBER


async def test_true_in_the_place_of_1_is_a_change_at_any_depth(alice: Peer, bob: Peer) -> None:
    made = await alice.syncher.create({"flat": 1, "deep": {"a": [1, 0]}})
    copy = await bob.syncher.subscribe(made.url)
    made.data["flat"] = True
    made.data["deep"] = {"a": [True, False]}
    await soon(lambda: copy.version == 2)
    assert copy.data["flat"] is True and copy.data["deep"]["a"][0] is True
    made.data["deep"] = {"a": [True, False]}
    assert made.version == 2
    await made.add_child({"a": 1}, "child")
    await made.update_child("child", {"a": True})
    await soon(lambda: copy.version == 4)
    assert copy.children[0].value["a"] is True
    children = Children()
    children.put("id", "hyperty://d/1", {"a": 1})
    told = {"id": {"source": "hyperty://d/1", "value": {"a": True}}}
    assert [each.type for each in children.replace(told)] == ["update"]
    assert children.replace(told) == []


async def test_who_creates_an_object_anew_is_noticed_whatever_his_clock_says(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await alice.syncher.create({"n": 0})
    copy = await bob.syncher.subscribe(made.url)
    for n in range(30):
        made.data["n"] = n + 1
    await settled()
    node.copies = lambda _: 0  # she is killed
    alice.close()
    await settled()
    node.copies = lambda _: 1
    for known in node.subscribers.values():
        if alice in known:
            known.remove(alice)
    behind = "msgnode.runtime.python.syncher.reporter._now"
    monkeypatch.setattr(behind, lambda: "2001-01-01T00:00:00.000Z")
    anew = await node.peer().syncher.create({"n": "new"}, url=made.url)
    anew.data["more"] = 1
    await soon(lambda: copy.data == {"n": "new", "more": 1})
    assert bob.bus.counters["data.anew"] == 1

    # Her changes that are late are not his, though their numbers would follow.
    body = {"version": 2, "attribute": "n", "value": "old", "incarnation": "hers"}
    head = {"type": "update", "from": made.url, "to": f"{made.url}/changes", "id": 9}
    bob.bus.receive({**head, "body": body}, bob.stub)
    anew.data["n"] = "newer"
    await soon(lambda: copy.data == {"n": "newer", "more": 1})


async def test_children_keep_their_order_over_reads_and_restarts(node: FakeNode, bob: Peer) -> None:
    storage: dict[str, str] = {}
    carol = node.peer(storage)
    made = await carol.syncher.create({}, store=True)
    for id_ in ("b", "10", "9", "a", "1"):
        await made.add_child("x" * 20_000, id_)  # in several parts
    await made.update_child("10", "changed")
    await made.remove_child("9")
    await made.add_child("again", "9")
    ids = ["b", "10", "a", "1", "9"]
    copy = await bob.syncher.subscribe(made.url)
    assert [each.id for each in copy.children] == ids
    carol.close()
    node.peers.remove(carol)
    (resumed,) = await Syncher(node.peer(storage), carol.hyperty).resume()
    assert [each.id for each in resumed.children] == ids


async def test_an_object_that_has_ended_can_be_changed_no_more_and_says_nothing(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 0, "list": [1, 2]})
    await bob.syncher.subscribe(made.url)
    items = made.data["list"]
    await made.delete()
    await settled()
    node.seen.clear()
    with pytest.raises(TypeError, match="has ended"):
        made.data["n"] = 1
    with pytest.raises(TypeError, match="has ended"):
        del made.data["n"]
    for change in (items.pop, items.reverse, items.clear):
        with pytest.raises(TypeError, match="has ended"):
            change()
    await settled()
    assert node.seen == []
    assert made.data == {"n": 0, "list": [1, 2]}


async def test_a_request_about_a_child_that_is_sent_again_is_done_once(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bob.bus, "request", partial(bob.bus.request, seconds=0.1))
    made = await alice.syncher.create({})
    copy = await bob.syncher.subscribe(made.url)
    answers = iter([0, 1, 1])
    node.copies = lambda each: (
        next(answers) if (each["type"], each["to"]) == ("response", bob.hyperty) else 1
    )
    adding = asyncio.ensure_future(copy.add_child("hi", "c"))
    await settled()
    await made.remove_child("c")
    assert await adding == "c"
    await settled()
    assert (made.children, copy.children) == ([], [])
    await copy.add_child("again", "c")  # another request
    assert len(made.children) == 1


async def test_requests_about_a_child_are_done_in_order_though_the_first_is_lost(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bob.bus, "request", partial(bob.bus.request, seconds=0.1))
    made = await alice.syncher.create({})
    copy = await bob.syncher.subscribe(made.url)
    await copy.add_child("0", "c")
    lost = iter([0, 1, 1, 1])
    to = f"{made.url}/children/"
    node.copies = lambda each: next(lost) if (each["type"], each["to"]) == ("update", to) else 1
    both = asyncio.gather(copy.update_child("c", "1"), copy.update_child("c", "2"))
    await copy.add_child("x", "other")  # does not wait for them
    assert made.children[0].value == "0"
    await both
    assert made.children[0].value == "2"
    with pytest.raises(SyncError) as refused:
        await copy.update_child("nothing", 1)
    assert refused.value.code == 404


async def test_who_closes_while_he_is_being_admitted_observes_nothing(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 0})
    admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    made.on_subscription(lambda _: admitted)
    other = Syncher(bob, "hyperty://d/other")
    subscribing = asyncio.ensure_future(other.subscribe(made.url))
    await settled()
    await other.close()
    admitted.set_result(True)
    with pytest.raises(SyncError) as refused:
        await subscribing
    assert refused.value.code == 503
    await settled()
    assert (made.observers, node.subscribers[f"{made.url}/changes"]) == ([], [])


async def test_who_answers_in_parts_cannot_fill_the_memory_of_who_reads(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    url = "comm://d/huge"
    node.subscribers[url] = [alice]

    def answer(message: dict[str, Any]) -> None:
        head = {"id": message["id"], "type": "response", "from": url, "to": message["from"]}
        values: list[dict[str, Any]] = [{"data": {}, "responses": 1_000}]
        child = {"source": "s", "value": "x" * 500_000}
        values += [{"childrenObjects": {f"c{number}": child}} for number in range(40)]
        for value in values:
            alice.bus.post_message({**head, "body": {"code": 100, "value": value}})

    alice.bus.add_listener(url, answer)
    with pytest.raises(SyncError) as refused:
        await ask_in_parts(bob.bus, {"type": "read", "from": bob.hyperty, "to": url})
    assert refused.value.code == 413


class Unfit:
    """What takes over its first value, and no other."""

    reads = 0

    def apply(self, change: dict[str, Any]) -> None:
        """Nothing changes."""

    async def read(self) -> dict[str, Any]:
        self.reads += 1
        return {"version": self.reads}

    def adopt(self, value: dict[str, Any]) -> None:
        if value["version"]:
            raise SyncError(502, "The reporter's object has no data.")

    def unread(self) -> None:
        """It is told so."""

    def count(self, reason: str) -> None:
        """It is counted."""


async def test_an_object_whose_value_is_none_is_read_again_ever_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follower, "READ_EVERY", 0.0)
    monkeypatch.setattr(follower, "LEAST_RETRY", 0.01)
    unfit = Unfit()
    it = follower.Follower(unfit)
    it.start({"version": 0})
    began = asyncio.get_running_loop().time()
    it.check()
    await soon(lambda: unfit.reads == 5)
    it.stop()
    assert asyncio.get_running_loop().time() - began >= 0.01 + 0.02 + 0.04 + 0.08

"""Changes of data objects, as far as they are Python's alone; test_cases has the rest."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

import pytest
from fake_clock import FakeClock, settled
from peers import FakeNode, Peer, soon
from sharing import shared

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.syncher.changes import MOST_NUMBER, apply_change
from msgnode.runtime.python.syncher.children import Children
from msgnode.runtime.python.syncher.errors import BadChange


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
    clock = FakeClock()
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
        await clock.turn(0.05)
    node.copies = lambda _: 1
    made.data["end"] = True
    await clock.turn(5)
    assert (copy.version, copy.data) == (made.version, made.data)


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

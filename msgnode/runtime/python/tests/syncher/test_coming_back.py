"""Gaps, connections and runtimes that come back, and the ends of objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from peers import FakeNode, Peer, settled, soon
from sharing import losing, shared

from msgnode.runtime.python.messages import answer_to
from msgnode.runtime.python.syncher import follower
from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.syncher import Syncher


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


async def test_a_guest_who_was_sent_away_knows_it_and_observes_again_when_he_may(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, copy = await shared(alice, bob)
    for n in range(3):
        await made.add_child("x" * 50_000, str(n))
    await settled()
    takes = node.received

    def refuses(peer: Peer, message: dict[str, Any]) -> None:
        if peer is bob:
            peer.bus.receive(answer_to(message, 403, "The invitation has ended."), peer.stub)
        else:
            takes(peer, message)

    monkeypatch.setattr(node, "received", refuses)
    for part in ("changes", "children/"):
        node.subscribers[f"{made.url}/{part}"].remove(bob)
    bob.say("gap")
    await soon(lambda: copy.status == "disconnected")
    made.data["title"] = "not for guests"
    await made.remove_child("1")
    await settled()
    assert copy.data["title"] == "Picnic"
    assert made.observers == [bob.hyperty]
    monkeypatch.setattr(node, "received", takes)
    monkeypatch.setattr(follower, "LEAST_RETRY", 1_000)
    assert await bob.syncher.subscribe(made.url) is copy
    await soon(lambda: copy.status == "live")
    assert copy.data == made.data
    assert [each.id for each in copy.children] == ["0", "2"]
    made.data["title"] = "heard again"
    await settled()
    assert copy.data == made.data


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


async def test_what_a_reporter_had_not_written_before_a_crash_is_gone_at_its_observers_too(
    node: FakeNode, bob: Peer
) -> None:
    storage: dict[str, str] = {}
    carol = node.peer(storage)
    made = await carol.syncher.create({"n": 0}, store=True)
    copy = await bob.syncher.subscribe(made.url)
    made.data["n"] = 1
    await settled()
    carol.manager._stored.close()  # what it does a quarter of a second later
    written = dict(storage)
    made.data["n"] = 2
    made.data["more"] = 7
    await settled()
    assert copy.data == {"n": 2, "more": 7}
    node.copies = lambda _: 0  # she is killed, and says nothing any more
    carol.close()
    await settled()
    node.copies = lambda _: 1
    for known in node.subscribers.values():
        if carol in known:
            known.remove(carol)
    again = node.peer(written)
    (resumed,) = await Syncher(again, carol.hyperty).resume()
    assert resumed.data == {"n": 1}
    await soon(lambda: copy.data == {"n": 1})
    resumed.data["n"] = 3
    await soon(lambda: copy.data == resumed.data)
    assert copy.version == resumed.version


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


async def test_an_observer_goes_on_after_a_crash_with_what_its_storage_has(
    node: FakeNode, alice: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: dict[str, str] = {}
    carol = node.peer(storage)
    made = [await alice.syncher.create({"n": n}) for n in range(3)]
    copies = [await carol.syncher.subscribe(each.url) for each in made]
    await copies[2].unsubscribe()
    await soon(lambda: storage)
    crashed = dict(storage)  # what it wrote until then
    for subscribers in node.subscribers.values():
        if carol in subscribers:
            subscribers.remove(carol)
    await made[1].delete()
    again = node.peer(crashed)
    (copy,) = await Syncher(again, carol.hyperty).resume_observers()
    assert copy.url == made[0].url
    made[0].data["n"] = 5
    await settled()
    assert copy.data == {"n": 5}
    assert [each.reason for each in again.faults] == ["data.not-resumed"]


async def test_a_subscription_is_repeated_when_the_line_is_back_and_decided_once(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made = await alice.syncher.create({"n": 1})
    deciding: list[asyncio.Future[bool]] = []

    def judge(_: Any) -> asyncio.Future[bool]:
        deciding.append(asyncio.get_running_loop().create_future())
        return deciding[-1]

    made.on_subscription(judge)
    node.copies = lambda message: message["to"] != f"{made.url}/subscription"  # lost on its way
    subscribing = asyncio.create_task(bob.syncher.subscribe(made.url))
    await settled()
    node.copies = lambda _: 1
    for word in ("disconnected", "live", "disconnected", "live"):
        bob.say(word)
    await settled()
    assert len(deciding) == 1
    deciding[0].set_result(True)
    assert (await subscribing).data == {"n": 1}


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


async def test_a_syncher_leaves_when_its_runtime_closes_and_holds_it_up_only_for_others(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    made, copy = await shared(alice, bob)
    close = {"type": "execute", "from": f"{bob.url}/registry/", "to": bob.hyperty}
    close["body"] = {"method": "close"}  # type: ignore[assignment]
    heard: list[Any] = []
    others = bob.bus.add_listener(bob.hyperty, heard.append)
    answering = asyncio.ensure_future(bob.bus.request(close))
    await soon(lambda: heard)
    await settled()
    assert (copy.status, answering.done()) == ("live", False)
    answering.cancel()
    others.remove()
    forged = {**close, "id": 7, "from": f"{alice.url}/registry/", "to": alice.hyperty}
    alice.bus.receive(forged, alice.stub)
    await settled()
    assert not made.is_ended
    assert (await bob.bus.request(close))["body"]["code"] == 200
    assert copy.status == "ended"
    assert made.observers == []
    await alice.bus.close()
    with pytest.raises(TypeError, match="ended"):
        made.data["title"] = "nobody would hear of it"
    assert bob.bus.endings == set()


async def test_a_runtime_that_closes_while_its_node_is_silent_leaves_nothing_behind(
    node: FakeNode, alice: Peer, bob: Peer
) -> None:
    _, copy = await shared(alice, bob)
    node.copies = lambda _: 0
    before = asyncio.all_tasks()
    close = {"type": "execute", "from": f"{bob.url}/registry/", "to": bob.hyperty}
    bob.bus.post_message({**close, "body": {"method": "close"}}, lambda _: None)
    await settled()
    assert copy.status == "ended"
    assert asyncio.all_tasks() > before  # it waits for what nobody answers
    bob.manager.close()
    await bob.bus.close()
    await settled()
    assert asyncio.all_tasks() == before

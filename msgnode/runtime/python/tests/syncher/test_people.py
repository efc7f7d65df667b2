"""Who reads, listens and leaves, as far as it is Python's alone; test_cases has the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fake_clock import FakeClock, settled
from peers import FakeNode, Peer, soon
from sharing import shared

from msgnode.runtime.python.syncher import follower
from msgnode.runtime.python.syncher.errors import SyncError
from msgnode.runtime.python.syncher.talk import ask_in_parts


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
    value = await ask_in_parts(carol.bus, request)
    assert len(value["childrenObjects"]) == 30
    made.on_read(fail)
    with pytest.raises(SyncError, match="knows no object") as error:
        await ask_in_parts(carol.bus, request)
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


async def test_an_object_whose_value_is_none_is_read_again_ever_later() -> None:
    clock, unfit = FakeClock(), Unfit()
    it = follower.Follower(unfit)
    it.start({"version": 0})
    it.check()
    await clock.turn(60)
    it.stop()
    assert 5 <= unfit.reads <= 7

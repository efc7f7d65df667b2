"""What nodes hold for data objects and have lost is subscribed again."""

from __future__ import annotations

from typing import Any

import pytest
from peers import FakeNode, Peer, settled, soon
from sharing import shared

from msgnode.runtime.python.messages import answer_to


async def test_what_the_node_has_ended_is_subscribed_again_at_a_gap_or_said_not_to_be(
    node: FakeNode, alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, copy = await shared(alice, bob)
    changes = f"{made.url}/changes"
    node.subscribers[changes].remove(bob)  # a policy does not allow it any more
    made.data["title"] = "heard by nobody"
    bob.say("gap")
    await soon(lambda: copy.data == made.data)
    assert bob in node.subscribers[changes]
    assert bob.faults == []
    takes = node.received

    def refuses(peer: Peer, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe" and message["to"].startswith("domain:"):
            peer.bus.receive(answer_to(message, 403, "A policy forbids it."), peer.stub)
        else:
            takes(peer, message)

    monkeypatch.setattr(node, "received", refuses)
    node.subscribers[changes].remove(bob)
    bob.say("gap")
    await soon(lambda: bob.faults)
    assert {each.reason for each in bob.faults} == {"data.not-announced"}
    assert any(made.url in each.text for each in bob.faults)


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

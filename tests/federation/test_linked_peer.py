"""A peer with a link and a stub: which of the two carries its messages, and what is answered."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.server import serve

from msgnode.core import messages
from msgnode.federation import linked_peer
from msgnode.federation.link_keys import own_keys
from msgnode.federation.link_protocol import LinkFault
from msgnode.federation.link_socket import LinkConnection, OwnNode
from msgnode.federation.linked_peer import LinkedPeer, LinkTo
from tests.ports import free_port

from .links import OURS, THEIRS, A, B, Linked, Played, linked
from .sandboxes import needs_deno, stub
from .test_node_links import End, Half

pytestmark = [needs_deno, pytest.mark.asyncio]


class Both:
    """A peer with a stub, and the other end of its link, which the test joins."""

    def __init__(self, one: Linked, peer: Played) -> None:
        assert isinstance(one.link, LinkedPeer)
        self.one, self.link, self.peer = one, one.link, peer
        self.there = End(B, A)
        [mine], [theirs] = self.link.wire.own.keys, self.there.wire.own.keys
        self.keys = {theirs.kid: {"x": theirs.x, "since": 1}}
        self.there.wire.trust({mine.kid: {"x": mine.x, "since": 1}})

    def join(self) -> None:
        """What dialling does: a socket from there."""
        self.dials, self.accepts = Half(), Half()
        link = LinkConnection(self.accepts, self.link.wire.own, lambda _: self.link.wire)
        self.dials.other = link
        dialled = LinkConnection(
            self.dials, self.there.wire.own, lambda _: self.there.wire, self.there.wire
        )
        self.accepts.other = dialled
        self.ends = (link, dialled)

    def cut(self) -> None:
        self.dials.is_cut = self.accepts.is_cut = True
        for each in self.ends:
            each.lost(LinkFault(1006, "cut"))

    async def way(self, way: str) -> None:
        await self.one.until(lambda: self.link.carrier()["way"] == way and self.is_live)

    @property
    def is_live(self) -> bool:
        return self.link.state == "live"

    @property
    def values(self) -> list[Any]:
        """What has come over the link."""
        return [json.loads(each)["body"].get("value") for each in self.there.heard]


@asynccontextmanager
async def both(
    url: str = "http://127.0.0.1:1", starts: asyncio.Semaphore | None = None
) -> AsyncIterator[Both]:
    own = OwnNode(A, own_keys(["secret"], A), 1024 * 1024, [ipaddress.ip_network("127.0.0.0/8")])
    peer = Played()
    to = LinkTo(own, url, lambda: None)
    async with linked(stub("reorders"), peer, to=to, starts=starts) as one:
        yield Both(one, peer)


async def test_a_peer_whose_keys_do_not_count_is_served_by_its_stub() -> None:
    async with both() as pair:
        await pair.way("stub")
        pair.one.post(1)
        await pair.one.until(lambda: pair.peer.values == [1])


async def test_case_l71_where_the_upgrade_is_refused_the_stub_serves_and_it_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linked_peer, "PATIENCE_SECONDS", 0.2)
    port = free_port()
    asked = asyncio.Event()

    def refuse(connection: Any, request: Any) -> Any:
        asked.set()
        return connection.respond(426, "not here")

    async with (
        serve(lambda _: asyncio.sleep(0), "127.0.0.1", port, process_request=refuse),
        both(f"http://127.0.0.1:{port}") as pair,
    ):
        pair.link.trust(pair.keys)
        await asked.wait()
        await pair.way("stub")
        pair.one.post(1)
        await pair.one.until(lambda: pair.peer.values == [1])
        await pair.one.until(lambda: "answered 426" in pair.link.carrier()["link"]["error"])


async def test_case_l74_a_link_takes_the_place_of_the_stub_and_the_stub_of_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits passes on the other way; what was sent on a link that is given up is answered."""
    async with both() as pair:
        await pair.way("stub")
        pair.link.trust(pair.keys)
        pair.join()
        pair.one.post(1)
        await pair.way("link")
        pair.one.post(2)
        await pair.one.until(lambda: 2 in pair.values)
        assert pair.peer.values + pair.values == [1, 2]
        assert pair.link.sandbox is not None
        await pair.link.sandbox.ended()
        answered = len(pair.one.node.said)
        monkeypatch.setattr(linked_peer, "PATIENCE_SECONDS", 0.1)
        pair.cut()
        pair.one.post(3)
        await pair.way("stub")
        await pair.one.until(lambda: pair.peer.values[-1:] == [3])
        told = [each for each in pair.one.node.said[answered:] if each["id"] == "m2"]
        assert [each["body"]["code"] for each in told] == [503]


async def test_case_l74_a_link_that_comes_about_while_the_stub_starts_takes_its_place() -> None:
    starts = asyncio.Semaphore(0)
    async with both(starts=starts) as pair:
        await pair.one.until(lambda: pair.link.sandbox is not None)
        pair.link.trust(pair.keys)
        pair.join()
        await pair.one.until(lambda: pair.link._moving is not None and pair.link._moving.done())
        starts.release()
        await pair.way("link")
        pair.one.post(1)
        await pair.one.until(lambda: pair.values == [1])


async def test_case_66_a_socket_that_is_cut_answers_nothing_and_loses_nothing() -> None:
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.join()
        await pair.way("link")
        for number in range(100):
            pair.one.post(number)
            if number % 20 == 10:
                pair.cut()
                pair.join()
        await pair.one.until(lambda: len(pair.values) == 100)
        assert pair.values == list(range(100))
        assert not [each for each in pair.one.node.said if each["id"] != "renewed"]


async def test_nothing_that_comes_is_lost_while_the_peer_has_no_session_yet() -> None:
    async with both() as pair:
        pair.one.node.opens.clear()
        pair.link.trust(pair.keys)
        pair.join()
        head = {"id": 1, "type": "read", "from": THEIRS, "to": OURS, "body": {}}
        pair.there.wire.send(json.dumps(head).encode())
        for _ in range(100):
            await asyncio.sleep(0)  # a turn of the loop
        pair.one.node.opens.set()
        await pair.one.until(lambda: [each for each in pair.one.node.said if each["id"] == 1])


async def test_case_67_one_message_that_is_refused_is_answered_and_the_others_are_carried() -> None:
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.join()
        await pair.way("link")
        head = {"id": 1, "type": "read", "from": THEIRS}
        for to in (OURS, "hyperty://c.example/1", OURS):
            pair.there.wire.send(json.dumps({**head, "to": to, "body": {}}).encode())
        await pair.one.until(lambda: pair.there.heard)
        [answer] = map(json.loads, pair.there.heard)
        assert (answer["to"], answer["from"]) == (THEIRS, "hyperty://c.example/1")
        assert answer["body"]["code"] == 403
        await pair.one.until(
            lambda: [each["to"] for each in pair.one.node.said if each["id"] == 1] == [OURS, OURS]
        )


async def test_case_71_that_the_other_node_marks_a_sender_as_verified_counts_for_nothing() -> None:
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.join()
        await pair.way("link")
        body = {"value": 1, "auth": True, "assertedIdentity": True}
        frame = {"id": 1, "type": "read", "from": THEIRS, "to": OURS, "body": body}
        pair.there.wire.send(json.dumps(frame).encode())
        await pair.one.until(lambda: [each for each in pair.one.node.said if each["id"] == 1])
        [carried] = [each for each in pair.one.node.said if each["id"] == 1]
        assert carried["body"] == {"value": 1}


async def test_a_subscription_that_names_others_beside_the_manager_is_no_way_around_the_rules() -> (
    None
):
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.join()
        await pair.way("link")
        to = [f"domain://msg-node.{A}/sm", f"domain://msg-node.{A}/address-allocation"]
        head = {"id": 7, "type": "subscribe", "from": f"runtime://{B}/mn-1/sm", "to": to}
        body = {"resources": [f"comm://{A}/1/changes"]}
        pair.there.wire.send(json.dumps({**head, "body": body}).encode())
        await pair.one.until(lambda: pair.there.heard)
        assert json.loads(pair.there.heard[0])["body"]["code"] == 403
        assert not [each for each in pair.one.node.said if each["id"] == 7]


async def test_a_message_that_the_other_node_cannot_take_is_answered() -> None:
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.there.wire.own = replace(pair.there.wire.own, max_frame=100_000)
        pair.join()
        await pair.way("link")
        pair.one.post("large", padding="x" * 100_000)
        await pair.one.until(lambda: any(each["id"] == "mlarge" for each in pair.one.node.said))
        [answer] = [each for each in pair.one.node.said if each["id"] == "mlarge"]
        assert answer["body"]["code"] == 400
        pair.one.post(2)
        await pair.one.until(lambda: pair.values == [2])


async def subscribed(pair: Both) -> None:
    """Something is observed there, over the link."""
    pair.link.trust(pair.keys)
    pair.join()
    await pair.way("link")
    pair.link.subscriptions.want([f"comm://{B}/1/changes"])
    await pair.one.until(lambda: len(pair.there.heard) == 1)
    asked = json.loads(pair.there.heard[0])
    answer = {"id": asked["id"], "type": "response", "from": asked["to"], "to": asked["from"]}
    pair.there.wire.send(json.dumps({**answer, "body": {"code": 200}}).encode())
    await pair.one.until(lambda: len(pair.link.subscriptions.held) == 1)


async def test_what_the_other_node_has_lost_and_this_one_is_told_and_asked_anew() -> None:
    """A gap over the link has everything subscribed there be renewed."""
    async with both() as pair:
        await subscribed(pair)
        pair.there.wire.tell_of_gap()
        await pair.one.until(lambda: len(pair.there.heard) == 2)


async def test_the_other_node_is_told_what_was_lost_on_the_way_to_its_session_here() -> None:
    """As when a link between workers has lost it: the session is told of a gap, like any other."""
    async with both() as pair:
        await subscribed(pair)
        status = f"{pair.link.peer.stub_url}/status"
        pair.link._outgoing(messages.event(f"domain://msg-node.{A}", status, "gap", 1))
        await pair.one.until(lambda: pair.there.gaps == 1)


async def test_case_69_what_is_subscribed_is_said_again_to_a_new_life_alone() -> None:
    async with both() as pair:
        await subscribed(pair)
        pair.cut()
        pair.join()
        await pair.way("link")
        pair.one.post("next")
        await pair.one.until(lambda: len(pair.there.heard) == 2)
        assert pair.values[1] == "next", "nothing before it: the subscription goes on"
        pair.cut()
        pair.there.wire.begin_anew()
        pair.join()
        await pair.one.until(lambda: len(pair.there.heard) == 3)
        said = json.loads(pair.there.heard[2])
        assert (said["type"], said["body"]["resources"]) == ("subscribe", [f"comm://{B}/1/changes"])


async def test_case_l73_a_ring_of_three_domains_passes_nothing_on() -> None:
    """What comes round is counted, and answered once, to whoever has asked."""
    async with both() as pair:
        pair.link.trust(pair.keys)
        pair.join()
        await pair.way("link")
        pair.one.post("round")
        await pair.one.until(lambda: len(pair.there.heard) == 1)
        pair.there.wire.send(pair.there.heard[0])
        beyond = {"id": 1, "type": "read", "from": "hyperty://c.example/1", "to": OURS, "body": {}}
        pair.there.wire.send(json.dumps(beyond).encode())
        await pair.one.until(lambda: pair.link.exchange.counters.refused == 2)
        assert pair.link.exchange.returned == 1
        await pair.one.until(lambda: len(pair.there.heard) == 3)
        told = [json.loads(each) for each in pair.there.heard[1:]]
        assert [(each["type"], each["body"]["code"]) for each in told] == [("response", 403)] * 2
        for each in told:  # those come round, too
            pair.there.wire.send(json.dumps(each).encode())
        await pair.one.until(lambda: pair.link.exchange.counters.refused == 3)
        [answer] = pair.one.node.said
        assert (answer["id"], answer["body"]["code"]) == ("mround", 403)
        assert len(pair.there.heard) == 3

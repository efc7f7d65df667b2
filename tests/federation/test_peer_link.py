"""A link with its stub in a real sandbox, to a peer that the test plays: order, losses, ends."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.federation.monitoring import PeerAlarms
from msgnode.federation.queue import MessageClass, Waiting
from msgnode.sandbox import process as sandbox

from .links import OURS, THEIRS, A, B, Played, linked
from .sandboxes import needs_deno, stub

pytestmark = [needs_deno, pytest.mark.asyncio]

EIGHT = list(range(1, 9))


def response(id_: str, code: int = 200) -> str:
    """What a runtime of the peer answers."""
    envelope = {"id": id_, "type": "response", "from": THEIRS, "to": OURS}
    return json.dumps({**envelope, "body": {"code": code}})


async def test_case_27_a_stub_that_sends_the_first_message_last_sends_all_in_order() -> None:
    peer = Played()
    async with linked(stub("reorders"), peer) as one:
        for number in EIGHT:
            one.post(number)  # before there is a sandbox, or a socket
        await one.until(lambda: len(peer.heard) == 8)
        assert peer.values == EIGHT


async def test_case_28_so_it_does_after_each_loss_of_its_socket() -> None:
    peer = Played()
    async with linked(stub("reorders"), peer) as one:
        await one.live()
        for lost in (1, 2):
            peer.heard.clear()
            peer.cut()
            await one.until(lambda lost=lost: not one.link._sockets.is_open)
            for number in EIGHT:
                one.post(number)
            await one.until(lambda: len(peer.heard) == 8)
            assert peer.values == EIGHT
        assert one.link.exchange.counters.lost == 0


async def test_what_a_node_was_asked_that_has_ended_is_answered_at_once() -> None:
    """Nothing listens there any more: though the session goes on later, it has lost them."""
    peer = Played()
    async with linked(stub("reorders"), peer) as one:
        await one.live()
        for number in EIGHT:
            one.post(number)
        await one.until(lambda: len(peer.heard) == 8)
        await peer.stop()
        await one.until(lambda: len(one.node.said) == 8)
        assert {each["body"]["code"] for each in one.node.said} == {503}
        assert "has ended" in one.node.said[0]["body"]["description"]
        await peer.start()
        await one.live()
        one.post(9)
        await one.until(lambda: 9 in peer.values)
        assert len(one.node.said) == 8


async def test_requests_are_answered_whose_stub_is_ended_because_its_session_here_has_ended() -> (
    None
):
    peer = Played()
    async with linked(stub("reorders"), peer) as one:
        await one.live()
        for number in EIGHT:
            one.post(number)
        await one.until(lambda: len(peer.heard) == 8)
        one.node.link.close(4403, "by an operator")
        await one.until(lambda: len(one.node.said) == 8)
        assert {each["body"]["code"] for each in one.node.said} == {503}


async def test_a_stub_that_does_not_say_that_its_socket_is_lost_is_told_to_connect() -> None:
    silent = stub("resumes").replace('this.socket.onclose = () => this.status("disconnected")', "")
    peer = Played()
    async with linked(silent, peer) as one:
        await one.live()
        peer.cut()
        await one.until(lambda: one.link.state == "disconnected")
        await one.live()
        one.post(1)
        await one.until(lambda: peer.values == [1])


async def test_an_operator_sees_why_a_peer_is_away_now_and_not_why_it_was_before() -> None:
    """The stub says no more than that it is disconnected."""
    peer = Played()
    async with linked(stub("resumes"), peer) as one:
        await one.live()
        peer.cut()
        await one.until(lambda: one.link.state == "disconnected")
        assert one.link.last_error == "its socket was lost"
        await one.live()
        await peer.stop()
        await one.until(lambda: "Connect call failed" in one.link.last_error)
        assert one.link.state == "disconnected"
        await peer.start()
        await one.live()
        peer.cut()
        await one.until(lambda: one.link.state == "disconnected")
        assert one.link.last_error == "its socket was lost"


async def test_what_a_stub_says_of_its_loss_is_not_hidden_by_what_the_node_knows() -> None:
    says = (
        stub("resumes")
        .replace(
            'onclose = () => this.status("disconnected")',
            'onclose = () => this.status("disconnected", "the contract has ended")',
        )
        .replace("status(value)", "status(value, desc)")
        .replace("{ value } }", "{ value, desc } }")
    )
    peer = Played()
    async with linked(says, peer) as one:
        await one.live()
        peer.cut()
        await one.until(lambda: one.link.last_error == "the contract has ended")
        assert one.link.state == "disconnected"
        await one.live()
        assert one.link.last_error == "", "one that is live shows no old error"


async def test_what_a_node_was_asked_that_is_only_cut_off_stays_asked() -> None:
    async def answers(message: dict[str, Any], link: ServerConnection) -> None:
        if message["body"]["value"] == 2:
            for id_ in ("m1", "m2"):
                await link.send(response(id_))

    peer = Played(answers)
    async with linked(stub("resumes"), peer) as one:
        await one.live()
        one.post(1)
        await one.until(lambda: peer.heard)
        peer.cut()
        await one.until(lambda: len(peer.links) == 2)
        one.post(2)
        await one.until(lambda: len(one.node.said) == 2)
        assert [each["body"]["code"] for each in one.node.said] == [200, 200]


async def test_case_59_a_stored_request_that_was_lost_with_a_socket_is_sent_again() -> None:
    """The session goes on: the peer was back before anybody noticed, or only the way was cut."""

    async def answers(message: dict[str, Any], link: ServerConnection) -> None:
        if link is peer.links[-1] and len(peer.links) > 1:
            await link.send(response(message["id"]))

    peer, kept = Played(answers), Kept()
    async with linked(stub("resumes"), peer, store=kept) as one:
        await one.live()
        one.post(1, store=True)
        one.post(2)
        await one.until(lambda: peer.values == [1, 2])
        peer.cut()
        await one.until(lambda: one.node.said)
        assert peer.values == [1, 2, 1]
        [answer] = one.node.said
        assert (answer["id"], answer["body"]["code"]) == ("m1", 200)
        assert kept.finished == ["1"]
        assert one.link.exchange.counters.failed == 0


async def test_case_32_a_peer_says_that_bubblewrap_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "can_wrap", lambda: False)
    async with linked(stub("umd"), Played(), wraps="required") as one:
        await one.until(lambda: one.link.state == "waiting")
        assert "bubblewrap is required" in one.link.last_error


@pytest.mark.parametrize("says", ["read", "response"])
async def test_case_54_a_peer_that_sends_back_what_it_was_sent_is_cut_and_an_alarm_says_so(
    says: str,
) -> None:
    """As of two nodes that are visitors of each other, or one that mistakes domains."""

    async def echoes(message: dict[str, Any], link: ServerConnection) -> None:
        await link.send(json.dumps({**message, "type": says}))

    async with linked(stub("reorders"), Played(echoes)) as one:
        await one.live()
        for number in EIGHT:
            one.post(number)
        await one.until(lambda: one.link.exchange.counters.refused == 8)
        assert one.node.said == [], "nothing of it is carried"
        assert one.peer.values == EIGHT, "nor sent again"
        assert one.link.exchange.returned == 8
        alarms: list[tuple[str, str]] = []
        looks = PeerAlarms(lambda kind, domain, _: alarms.append((kind, domain)), lambda *_: None)
        looks.look(one.link)
        looks.look(one.link)
        assert alarms == [("peer-loop", B)]


async def test_case_26_a_peer_that_speaks_as_somebody_of_this_domain_raises_an_alarm() -> None:
    async def forges(message: dict[str, Any], link: ServerConnection) -> None:
        await link.send(json.dumps({**message, "id": "new", "from": f"hyperty://{A}/other"}))
        await link.send(json.dumps({**message, "id": "x", "from": "mn:/session"}))
        status = f"runtime://{A}/messaging-node-9"
        body = {"value": "failed"}
        await link.send(
            json.dumps({**message, "from": status, "to": f"{status}/status", "body": body})
        )

    async with linked(stub("resumes"), Played(forges)) as one:
        await one.live()
        one.post(1)
        await one.until(lambda: one.link.exchange.counters.refused == 2)
        assert one.node.said == []
        assert one.link.state == "live", "no status of another stub is its own"
        alarms: list[tuple[str, str]] = []
        PeerAlarms(lambda kind, domain, _: alarms.append((kind, domain)), lambda *_: None).look(
            one.link
        )
        assert alarms == [("peer-spoofs", B)]


async def test_case_55_a_message_of_a_third_domain_or_for_one_is_cut_at_the_first_node() -> None:
    """Three nodes that take each other for somebody else pass nothing round: each is the last."""
    third = "hyperty://c.example/1"

    async def relays(message: dict[str, Any], link: ServerConnection) -> None:
        for id_, sender, to in (("1", THEIRS, third), ("2", third, OURS), ("3", third, third)):
            await link.send(json.dumps({**message, "id": id_, "from": sender, "to": to}))

    async with linked(stub("resumes"), Played(relays)) as one:
        await one.live()
        one.post(1)
        await one.until(lambda: one.link.exchange.counters.refused == 3)
        assert one.node.said == [], "what B wants to pass on here goes nowhere"
        for sender in (third, f"hyperty://{B}/2"):
            frame = {"id": sender, "type": "read", "from": sender, "to": THEIRS, "body": {}}
            one.link._outgoing(json.dumps(frame).encode())
        codes = [(each["to"], each["body"]["code"]) for each in one.node.said]
        assert codes == [(third, 403), (f"hyperty://{B}/2", 403)]
        one.post(2)
        await one.until(lambda: len(one.peer.heard) == 2)
        assert one.peer.values == [1, 2], "nor does what is to be passed on to B"


async def test_case_73_an_operator_has_a_peer_be_tried_at_once_whatever_the_back_offs_say() -> None:
    peer = Played()
    async with linked(stub("resumes"), peer) as one:
        await one.live()
        link, sockets = one.link, one.link._sockets
        assert sockets is not None
        link._reconnects.failures = 20  # as after hours: half a minute between two tries
        await peer.stop()
        await one.until(lambda: sockets.attempts == 2 and sockets._waiting)
        await peer.start()
        began = time.monotonic()
        link.hurry()
        await one.live()
        assert time.monotonic() - began < 10
        assert sockets.attempts == 3
        assert link._reconnects.failures == 1, "from then on it waits as after a first failure"
        link._restarts.failures = 20  # five minutes between two lives of its sandbox
        assert link.sandbox is not None
        link.sandbox.kill("it is to end")
        await one.until(lambda: link.state == "waiting")
        link.hurry()
        await one.live()
        assert time.monotonic() - began < 20


async def test_no_more_sandboxes_start_at_a_time_than_may() -> None:
    """And one that is loaded makes room for the next."""
    starts = asyncio.Semaphore(1)
    await starts.acquire()
    peers = [Played(), Played()]
    async with (
        linked(stub("resumes"), peers[0], starts=starts) as one,
        linked(stub("resumes"), peers[1], starts=starts) as other,
    ):
        await one.until(lambda: one.link.sandbox is not None and other.link.sandbox is not None)
        await one.until(lambda: len(starts._waiters or ()) == 2)
        assert (one.link.sandbox.pid, other.link.sandbox.pid) == (0, 0)  # type: ignore[union-attr]
        starts.release()
        await one.live()
        await other.live()
        assert not starts.locked()


async def test_who_waits_for_a_sandbox_that_has_no_place_yet_is_answered_in_time() -> None:
    starts = asyncio.Semaphore(1)
    await starts.acquire()
    async with linked(stub("resumes"), Played(), starts=starts) as one:
        one.link.exchange.queue._seconds[MessageClass.REQUEST] = 0.2
        one.post(1)
        await one.until(lambda: one.node.said)
        assert one.node.said[0]["body"]["code"] == 504
        starts.release()
        await one.live()


async def test_a_fault_of_the_node_ends_the_stub_and_what_is_due_is_done_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with linked(stub("resumes"), Played()) as one:
        await one.live()
        before = FAULTS.counts["peer"]
        with monkeypatch.context() as patch:
            patch.setattr(one.link.exchange, "expire", lambda _: 1 // 0)
            one.link._look_in_time()
        assert FAULTS.counts["peer"] == before + 1
        await one.until(lambda: one.link.exchange.counters.restarts)
        await one.live()


async def test_case_62_a_peer_that_is_served_no_more_hears_a_good_bye() -> None:
    """What waits is answered, but for what is stored."""
    peer, kept = Played(), Kept()
    async with linked(stub("resumes"), peer, store=kept) as one:
        await one.live()
        one.post(1)
        one.post(2, store=True)
        await one.until(lambda: peer.values == [1, 2])
        await one.link.stop()
        await one.until(lambda: peer.links[0].close_code is not None)
        assert peer.links[0].close_code == 1000, "the stub has closed its socket"
        assert [(each["id"], each["body"]["code"]) for each in one.node.said] == [("m1", 503)]
        assert kept.finished == []


async def test_case_34_a_stub_that_ends_each_time_it_is_live_fails_again_and_again() -> None:
    dies = stub("resumes").replace(
        'this.status("live");', 'this.status("live"); this.status("failed");'
    )
    async with linked(dies, Played()) as one:
        for number in (1, 2, 3):
            await one.until(lambda number=number: one.link.failures_in_a_row == number)
        assert one.link.exchange.counters.restarts == 3


async def test_case_76_a_stub_that_does_not_come_back_is_told_to_and_hears_the_next() -> None:
    peer = Played()
    async with linked(stub("resumes"), peer) as one:
        await one.live()
        for number in (1, 2):
            peer.cut()
            await one.until(lambda number=number: len(peer.links) == number + 1)
            await one.until(lambda: one.link.state == "live" and one.link._sockets.is_open)
            update = {"type": "update", "from": f"comm://{B}/r", "to": f"comm://{B}/r/changes"}
            update = {**update, "id": f"u{number}", "body": {"value": number}}
            await peer.links[-1].send(json.dumps(update))
            await one.until(lambda number=number: len(one.node.said) == number)
        assert [each["body"]["value"] for each in one.node.said] == [1, 2]


class Kept:
    """A store that writes nothing down."""

    def __init__(self) -> None:
        self.keys = 0
        self.finished: list[str] = []
        self.aside: list[Any] = []

    def keep(self, message: Message) -> str:
        self.keys += 1
        return str(self.keys)

    def done(self, key: str) -> None:
        self.finished.append(key)

    def answering(self, message: Message) -> None:
        """It is about to be."""

    def set_aside(self, one: Waiting, reason: str) -> None:
        self.aside.append((one.message.fields()["value"], reason))


@pytest.mark.long
async def test_case_60_a_message_over_which_the_stub_loops_is_set_aside_and_the_rest_flows() -> (
    None
):
    async def answers(message: dict[str, Any], link: ServerConnection) -> None:
        await link.send(response(message["id"]))

    loops = "send(message) { while (message.body?.value === 'poison'); "
    peer, kept = Played(answers), Kept()
    source = stub("resumes").replace("send(message) {", loops)
    async with linked(source, peer, store=kept, silence=2.5) as one:
        await one.live()
        for value in (1, "poison", 2, 3):
            one.post(value, store=True)
        await one.until(lambda: kept.aside)
        [(value, reason)] = kept.aside
        assert value == "poison"
        assert "unresponsive" in reason
        await one.until(lambda: {1, 2, 3} <= set(peer.values))
        await one.until(lambda: len(one.node.said) == 4)
        codes = {each["id"]: each["body"]["code"] for each in one.node.said}
        assert codes == {"m1": 200, "m2": 200, "m3": 200, "mpoison": 502}
        assert one.link.exchange.counters.restarts >= 3, "and once more on a starved machine"

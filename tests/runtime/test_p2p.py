"""Two Python runtimes with a real channel between them, and a real node."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.node import Node

from .p2p_talkers import (  # noqa: F401 (a fixture for all)
    SECONDS,
    Talker,
    connect,
    numbered,
    on_loopback,
    talkers,
)

pytestmark = pytest.mark.xdist_group("p2p")

PATIENT = P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
P2P = P2PSettings(timers=PATIENT)  # a starved machine answers late
ALERT = P2PSettings(timers=replace(PATIENT, ping=2.0, dead=6.0))


async def test_case_p15_the_first_message_goes_by_node_and_the_next_by_channel(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        first = await alice.ask(bob, 1, p2p=True)
        assert first["value"] == 1 and "/protostub/" in first["cameBy"]
        await connect(alice, bob)
        second = await alice.ask(bob, 2)
        assert second["value"] == 2 and "/p2prequester/" in second["cameBy"]
        back = await bob.ask(alice, 3)
        assert back["value"] == 3 and "/p2prequester/" in back["cameBy"]
        states = [state for peer, state in alice.states if peer == bob.runtime.url]
        assert states == ["created", "in-progress", "live"]
        states = [state for peer, state in bob.states if peer == alice.runtime.url]
        assert states == ["created", "in-progress", "live"]


async def test_case_p2_without_p2p_everything_goes_by_node_and_nobody_waits(node: Node) -> None:
    async with talkers(node, P2P, None) as (alice, bob):
        body = {"p2pHandler": f"{bob.runtime.url}/p2phandler/1", "p2pRequester": "x"}
        message = {"type": "create", "from": alice.url, "to": bob.url}
        asked = {**message, "body": {"value": 1, "p2p": True, **body}}
        answer = await alice.runtime.bus.request(asked, 20)
        assert answer["body"]["value"] == 1
        await alice.until(lambda: (bob.runtime.url, "failed") in alice.states)
        peer = alice.p2p.known[bob.runtime.url]
        assert peer.state == "failed" and not peer.is_on_channel
        again = await alice.runtime.bus.request({**asked, "id": 0}, 20)
        assert again["body"]["value"] == 1
        assert peer.dialling is None  # it is left alone for a while


@pytest.mark.long
async def test_case_p30_numbers_keep_their_order_while_the_channel_opens(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await numbered(alice, bob, lambda: connect(alice, bob))
        assert bob.by_channel > 0


async def test_case_p32_numbers_survive_an_orderly_end(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)

        async def end() -> None:
            await bob.until(lambda: len(bob.numbers) > 50)
            alice.p2p.known[bob.runtime.url].bye("idle")
            await alice.until(lambda: alice.way_to(bob) is Way.NODE)

        await numbered(alice, bob, end)


async def test_case_p36_an_answer_comes_once_though_its_channel_is_gone(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        address, asked, answers = f"{bob.runtime.url}/slow", asyncio.Event(), []
        taken: list[Message] = []

        def take(message: Message) -> None:
            taken.append(message)
            asked.set()

        bob.runtime.bus.add_listener(address, take)
        request = {"type": "create", "from": alice.url, "to": address, "body": {}}
        alice.runtime.bus.post_message(request, answers.append, SECONDS)
        async with asyncio.timeout(SECONDS):
            await asked.wait()
        assert "/p2prequester/" in taken[0]["body"]["via"]
        alice.p2p.known[bob.runtime.url].bye("idle")
        await alice.until(lambda: alice.way_to(bob) is Way.NODE)
        await bob.until(lambda: bob.way_to(alice) is Way.NODE)
        head = {"id": taken[0]["id"], "type": "response", "from": address, "to": alice.url}
        bob.runtime.bus.post_message({**head, "body": {"code": 200, "value": "late"}})
        await alice.until(lambda: answers)
        assert (await alice.ask(bob, 1))["value"] == 1  # behind it, by node
        assert [each["body"]["value"] for each in answers] == ["late"]
        assert not alice.runtime.bus.counters["answers.unexpected"]
        assert len(taken) == 1 and not bob.p2p.known[alice.runtime.url].unanswered


@pytest.mark.long
async def test_case_p43_a_channel_is_no_way_to_others(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        message = {"type": "create", "from": alice.url, "to": f"{bob.runtime.url}/nobody"}
        answer = await alice.runtime.bus.request({**message, "body": {}}, 20)
        assert answer["body"]["code"] == 404


@pytest.mark.long
@pytest.mark.parametrize("sender", ["hyperty://localhost/carol", "runtime://localhost/carol/app"])
async def test_case_p48_nobody_speaks_for_others_on_a_channel(node: Node, sender: str) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        peer = alice.p2p.known[bob.runtime.url]
        body = {"value": 7, "auth": True}
        for number in range(10):
            message = {"id": f"forged-{number}", "type": "create", "from": sender, "to": bob.url}
            peer.send({**message, "body": body}, 100)
        await bob.until(lambda: not bob.p2p.known[alice.runtime.url].link.is_open)
        assert bob.runtime.bus.counters["p2p.forged"] == 10
        assert (await alice.ask(bob, 8))["value"] == 8  # by node


async def test_case_p52_neither_marks_nor_tokens_enter_a_channel(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        peer = alice.p2p.known[bob.runtime.url]
        seen: list[str] = []
        to_channel = peer.to_channel

        def note(frame: str) -> None:
            seen.append(frame)
            to_channel(frame)

        monkeypatch.setattr(peer, "to_channel", note)
        assert (await alice.ask(bob, 1, peer="x"))["value"] == 1
        assert seen and not any('"peer"' in frame or '"via"' in frame for frame in seen)


async def test_case_p57_who_leaves_says_bye_and_the_other_goes_on_by_node(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        await bob.runtime.close()
        await alice.until(lambda: alice.way_to(bob) is Way.NODE)
        assert (bob.runtime.url, "disconnected") in alice.states


@pytest.mark.long
async def test_case_p26_both_invite_at_once_100_times_and_one_connection_comes_about(
    node: Node,
) -> None:
    async def invite(alice: Talker, bob: Talker) -> None:
        await asyncio.gather(alice.ask(bob, 1, p2p=True), bob.ask(alice, 2, p2p=True))
        for number in range(10):
            alice.say(bob, number)
            bob.say(alice, number)
        await alice.until(lambda: alice.way_to(bob) is Way.CHANNEL)
        await bob.until(lambda: bob.way_to(alice) is Way.CHANNEL)
        await alice.until(lambda: len(alice.numbers) == len(bob.numbers) == 10)
        assert alice.numbers == bob.numbers == list(range(10))
        a, b = alice.p2p.known[bob.runtime.url], bob.p2p.known[alice.runtime.url]
        assert a.is_requester is not b.is_requester and a.link.epoch == b.link.epoch
        states = [state for _, state in (*alice.states, *bob.states)]
        assert "failed" not in states and states.count("live") == 2

    for _ in range(10):
        async with talkers(node, *[P2P] * 20) as all_:
            await asyncio.gather(*map(invite, all_[::2], all_[1::2]))


@pytest.mark.long
async def test_case_p31_numbers_survive_a_silent_loss(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with talkers(node, ALERT, ALERT) as (alice, bob):
        await connect(alice, bob)

        async def cut() -> None:
            await bob.until(lambda: len(bob.numbers) > 50)
            for talker, other in ((alice, bob), (bob, alice)):
                rtc = talker.p2p.known[other.runtime.url]._rtc
                assert rtc is not None
                monkeypatch.setattr(rtc, "send", lambda frame: None)
            await alice.until(lambda: alice.way_to(bob) is Way.NODE)

        await numbered(alice, bob, cut)
        links = [alice.p2p.known[bob.runtime.url].link, bob.p2p.known[alice.runtime.url].link]
        assert sum(link.resent for link in links) > 0

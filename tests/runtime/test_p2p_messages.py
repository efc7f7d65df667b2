"""Which messages two Python runtimes send on a real channel, and how they arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.node import Node

from .p2p_talkers import Talker, connect, on_loopback, talkers  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.xdist_group("p2p")

PATIENT = P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
P2P = P2PSettings(timers=PATIENT)


async def test_cases_p16_and_p17_ten_at_once_have_one_set_up_and_keep_their_order(
    node: Node,
) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        asked: list[Message] = []
        send = alice.p2p._node.send

        def note(message: Message, size: int, stub: str) -> str:
            asked.append(message)
            return send(message, size, stub)

        alice.p2p._node.send = note  # type: ignore[method-assign]
        for number in range(10):
            alice.say(bob, number, p2p=True, p2pHandler=bob.p2p.handler)
        await alice.until(lambda: alice.way_to(bob) is Way.CHANNEL)
        await bob.until(lambda: len(bob.numbers) == 10)
        assert bob.numbers == list(range(10))
        assert [state for _, state in bob.states] == ["created", "in-progress", "live"]
        invited = [each for each in asked if each["to"] == bob.p2p.handler]
        assert [each["type"] for each in invited].count("create") == 1
        assert not [each for each in asked if each["to"].startswith("domain://registry.")]


async def test_case_p44_messages_of_any_length_arrive_whole_and_the_next_behind_them(
    node: Node,
) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        for size in (100, 16_384, 16_385, 262_145, 1_040_000):
            answer = await alice.ask(bob, "x" * size)
            assert answer["value"] == "x" * size and "/p2prequester/" in answer["cameBy"]
            bob.numbers.clear()
            alice.say(bob, "x" * size)
            alice.say(bob, 1)
            await bob.until(lambda: len(bob.numbers) == 2)
            assert bob.numbers == ["x" * size, 1]
        assert alice.way_to(bob) is Way.CHANNEL


async def test_case_p49_what_a_sender_says_of_its_identity_is_taken_away(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        await connect(alice, bob)
        got: list[Message] = []
        bob.runtime.bus.add_listener(f"{bob.url}/raw", got.append)
        claims = {"auth": True, "assertedIdentity": True, "via": "x", "peer": "y"}
        message: Any = {"type": "update", "from": alice.url, "to": f"{bob.url}/raw"}
        alice.runtime.bus.post_message({**message, "body": {"value": 1, **claims}})
        alice.say(bob, 2)
        await bob.until(lambda: bob.numbers)
        assert set(got[0]["body"]) == {"value", "via"} and "/p2prequester/" in got[0]["body"]["via"]


async def test_case_p54_a_channel_that_is_not_used_is_left_and_dialled_when_it_is_wanted(
    node: Node,
) -> None:
    brief = P2PSettings(timers=replace(PATIENT, idle=1.0))
    async with talkers(node, brief, brief) as (alice, bob):

        async def left(one: Talker, other: Talker) -> None:
            peer = (other.runtime.url, "disconnected")
            await one.until(lambda: peer in one.states and one.way_to(other) is Way.NODE)

        await connect(alice, bob)
        await left(alice, bob)
        await left(bob, alice)
        assert "/protostub/" in (await alice.ask(bob, 1))["cameBy"]
        assert not alice.p2p.known[bob.runtime.url].is_needed()  # nobody dials by himself
        await connect(alice, bob)

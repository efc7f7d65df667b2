"""Channels to runtimes with the P2P stubs of the field: no numbers, no fence, late descriptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.node import Node

from .field_peer import (
    FieldPeer,
    Written,
    at_once,
    candidates_first,
    split,
    split_type_first,
)
from .p2p_talkers import Talker, connect, on_loopback, talkers  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.xdist_group("p2p")

PATIENT = P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
P2P = P2PSettings(timers=PATIENT)  # a starved machine answers late


@asynccontextmanager
async def pair(
    node: Node, written: Written = at_once, p2p: P2PSettings = P2P
) -> AsyncIterator[tuple[Talker, FieldPeer]]:
    """A runtime of ours and one of the field."""
    async with (
        talkers(node, p2p) as (alice,),
        node.ws() as client,
        FieldPeer(await client.open(), written) as field,
    ):
        yield alice, field


def ask_of(alice: Talker, field: FieldPeer, value: Any, **named: Any) -> Any:
    message = {"type": "create", "from": alice.url, "to": field.url}
    return alice.runtime.bus.request({**message, "body": {"value": value, **named}}, 60)


def way(alice: Talker, field: FieldPeer) -> Way:
    peer = alice.p2p.known.get(field.runtime_url)
    return peer.link.way if peer else Way.NODE


async def come_together(alice: Talker, field: FieldPeer, role: str) -> None:
    """A channel, set up by us ("requester") or by the other ("handler")."""
    if role == "requester":
        named = {"p2p": True, "p2pHandler": field.handler, "p2pRequester": "x"}
        assert (await ask_of(alice, field, 0, **named))["body"]["value"] == 0
    else:
        assert (await field.invite(alice.p2p.handler))["body"]["code"] == 200
    await alice.until(lambda: way(alice, field) is Way.CHANNEL)
    await alice.until(lambda: field.channel is not None and field.channel.readyState == "open")


def tell(alice: Talker, field: FieldPeer, value: Any) -> None:
    message = {"type": "update", "from": alice.url, "to": field.url, "body": {"value": value}}
    alice.runtime.bus.post_message(message)


async def carries_both_ways(alice: Talker, field: FieldPeer) -> None:
    """Messages by channel in order, and requests by node, which answers."""
    for number in range(50):
        tell(alice, field, number)
        field.say(alice.url, number)
    await alice.until(lambda: len(field.by_channel) >= 50 and len(alice.numbers) >= 50)
    assert [each["body"]["value"] for each in field.by_channel] == list(range(50))
    assert alice.numbers == list(range(50)) and alice.by_channel == 50
    assert (await ask_of(alice, field, "asked"))["body"]["value"] == "asked"
    assert field.by_node[-1]["body"]["value"] == "asked"
    assert not field.raised


@pytest.mark.parametrize("role", ["requester", "handler"])
async def test_case_p24_a_channel_with_the_field_carries_messages_both_ways(
    node: Node, role: str
) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, role)
        await carries_both_ways(alice, field)
        states = [state for peer, state in alice.states if peer == field.runtime_url]
        assert states == ["created", "in-progress", "live"]


async def test_a_hyperty_of_the_field_that_has_dialled_is_looked_up_and_has_the_channel(
    node: Node,
) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, "handler")
        there = await field.hyperty()
        body = {"value": 0}
        message = {"type": "update", "from": alice.url, "to": there, "body": body}
        alice.runtime.bus.post_message(message)
        await alice.until(lambda: field.by_node)
        await alice.until(lambda: alice.runtime.explain(there).way == "channel")
        for number in range(1, 50):
            alice.runtime.bus.post_message({**message, "body": {"value": number}})
        await alice.until(lambda: len(field.by_channel) == 49)
        assert [each["body"]["value"] for each in field.by_channel] == list(range(1, 50))
        assert {each["to"] for each in field.by_channel} == {there}


@pytest.mark.parametrize("role", ["requester", "handler"])
@pytest.mark.parametrize("written", [split, split_type_first, candidates_first])
async def test_cases_p18_and_p19_descriptions_and_candidates_come_in_any_order(
    node: Node, written: Written, role: str
) -> None:
    async with pair(node, written) as (alice, field):
        await come_together(alice, field, role)
        field.say(alice.url, 7)
        await alice.until(lambda: alice.numbers == [7])


async def test_case_p27_both_invite_at_once_and_each_message_comes_once(node: Node) -> None:
    async with pair(node) as (alice, field):
        named = {"p2p": True, "p2pHandler": field.handler, "p2pRequester": "x"}
        await asyncio.gather(ask_of(alice, field, 0, **named), field.invite(alice.p2p.handler))
        await alice.until(lambda: way(alice, field) is Way.CHANNEL)
        for number in range(50):
            tell(alice, field, number)
        await alice.until(lambda: len(field.by_channel) + len(field.by_node) >= 51)
        came = [*field.by_channel, *field.by_node]
        told = [each["body"]["value"] for each in came if each["type"] == "update"]
        assert sorted(told) == list(range(50))
        assert (field.runtime_url, "failed") not in alice.states


async def test_what_may_be_lost_with_the_fields_channel_is_said_to_its_sender(node: Node) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, "requester")
        answers: list[Message] = []
        alice.runtime.bus.add_listener(f"{alice.url}/sender", answers.append)
        message = {"type": "update", "from": f"{alice.url}/sender", "to": field.url}
        alice.runtime.bus.post_message({**message, "id": "unsure", "body": {"value": 1}})
        await alice.until(lambda: field.by_channel)
        for each in field.connections:
            await each.close()
        await alice.until(lambda: way(alice, field) is Way.NODE)
        await alice.until(lambda: answers)
        assert [(each["id"], each["body"]["code"]) for each in answers] == [("unsure", 503)]
        assert "may be lost" in answers[0]["body"]["desc"]
        assert alice.runtime.bus.counters["undeliverable.503"] == 1
        tell(alice, field, "after")
        await alice.until(lambda: field.by_node[-1]["body"]["value"] == "after")


async def test_nobody_has_a_channel_of_the_field_in_the_name_of_another(node: Node) -> None:
    brief = P2PSettings(timers=replace(PATIENT, set_up=2.0))
    async with talkers(node, P2P, brief) as (alice, bob), node.ws() as client:
        await connect(alice, bob)
        async with FieldPeer(await client.open()) as mallory:
            answer = await mallory.invite(bob.p2p.handler, claimed=alice.runtime.url)
            assert answer["body"]["code"] == 200
            await bob.until(lambda: bob.runtime.bus.counters["p2p.not-handled"])
            assert mallory.channel.readyState != "open"
            assert any("403" in each or "KeyError" in each for each in mallory.raised)
        # What is known of the one he claimed to be is as before.
        assert alice.way_to(bob) is bob.way_to(alice) is Way.CHANNEL
        assert "/p2prequester/" in (await alice.ask(bob, 1))["cameBy"]
        assert [state for _, state in bob.states] == ["created", "in-progress", "live"]


async def test_the_field_is_refused_where_the_settings_say_so(node: Node) -> None:
    async with pair(node, p2p=replace(P2P, field_peers=False)) as (alice, field):
        assert (await field.invite(alice.p2p.handler))["body"]["code"] == 501
        assert not alice.p2p.known


async def test_case_p48_the_field_speaks_for_its_own_runtime_alone(node: Node) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, "handler")
        for number in range(10):
            field.say(alice.url, number, **{"from": "runtime://localhost/carol/app"})
        await alice.until(lambda: way(alice, field) is Way.NODE)
        assert alice.numbers == [] and alice.runtime.bus.counters["p2p.forged"] == 10


async def test_case_p46_frames_that_are_none_end_the_fields_channel(node: Node) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, "handler")
        hostile = ["", "{", "[]", '{"uuid":"x","data":"piece"}', b"", b"x" * 24, b"\xff" * 7]
        for each in [*hostile, '{"uuid":"x","data":{"dataSize":1e9,"textMessage":{}}}']:
            field.channel.send(each)
        field.say(alice.url, 1)
        await alice.until(lambda: alice.numbers == [1])
        for _ in range(10):
            field.channel.send("{")
        await alice.until(lambda: way(alice, field) is Way.NODE)


SIZES = [0, 1, 16_384, 16_385, 40_000]


async def test_case_p45_contents_of_bytes_arrive_equal_by_channel_and_are_refused_without(
    node: Node,
) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        got: list[Message] = []
        bob.runtime.bus.add_listener(f"{bob.runtime.url}/files", got.append)
        message = {"type": "create", "from": alice.url, "to": f"{bob.runtime.url}/files"}

        def file(size: int) -> Message:
            value = {"mimetype": "image/png", "content": bytes(range(256)) * (size // 256 + 1)}
            value["content"] = value["content"][:size]
            return {**message, "body": {"value": value}}

        refused = await alice.runtime.bus.request(file(10), 60)
        assert refused["body"]["code"] == 503 and "bytes" in refused["body"]["desc"]
        await connect(alice, bob)
        for size in SIZES:
            alice.runtime.bus.post_message(file(size))
            alice.say(bob, size)
        await bob.until(lambda: len(got) == len(SIZES) and len(bob.numbers) == len(SIZES))
        assert [each["body"]["value"]["content"] for each in got] == [
            file(size)["body"]["value"]["content"] for size in SIZES
        ]
        assert {each["body"]["value"]["mimetype"] for each in got} == {"image/png"}


async def test_case_p45_contents_of_the_field_arrive_and_their_progress_is_told(
    node: Node,
) -> None:
    async with pair(node) as (alice, field):
        await come_together(alice, field, "handler")
        answers: list[Message] = []
        asked = {"type": "read", "from": alice.url, "to": f"{field.url}/file", "body": {}}
        alice.runtime.bus.post_message({**asked, "id": "file"}, answers.append, 60)
        await alice.until(lambda: field.by_node)
        content = bytes(range(250)) * 200
        answer = {"id": "file", "type": "response", "from": asked["to"], "to": alice.url}
        field.write({**answer, "body": {"code": 200, "value": {}}}, len(content), "abcdefghijkl")
        for at in range(0, len(content), 16_384):
            piece = content[at : at + 16_384]
            field.channel.send("abcdefghijkl".encode("utf-16-le") + piece)
        await alice.until(lambda: answers and answers[-1]["body"]["code"] == 200)
        assert answers[-1]["body"]["value"]["content"] == content
        told = [each["body"]["value"] for each in answers[:-1]]
        assert told == [32, 65, 98] and {each["body"]["code"] for each in answers[:-1]} == {183}
        # The other direction: bytes that the field can put together.
        value = {"mimetype": "image/png", "content": content}
        alice.runtime.bus.post_message(
            {"type": "update", "from": alice.url, "to": field.url, "body": {"value": value}}
        )
        await alice.until(lambda: b"".join(each[24:] for each in field.bytes) == content)
        assert {len(each) <= 16_384 + 24 for each in field.bytes} == {True}

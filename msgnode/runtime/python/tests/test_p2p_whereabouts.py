"""In which runtime an address is: by the registry's word for all, by a sender's own for him."""

from __future__ import annotations

import asyncio

import pytest
from bus_harness import turn, until
from test_p2p_invitations import settled, several
from test_p2p_set_up import Side, two

from msgnode.runtime.python.messages import Message

ECHO = "hyperty://d/echo"


def registry(monkeypatch: pytest.MonkeyPatch, side: Side, *owners: Side) -> list[str]:
    """What the registry says to one side; returns what it was asked."""
    asked: list[str] = []
    whereabouts = side.p2p._whereabouts

    async def look(url: str) -> None:
        asked.append(url)
        owner = owners[min(len(asked), len(owners)) - 1]
        whereabouts.note(url, {"runtime": owner.url, "p2pHandler": owner.p2p.handler})

    monkeypatch.setattr(whereabouts, "_look", look)
    return asked


def tell(side: Side, number: int, sender: str = "app", **body: bool | str) -> None:
    head = {"type": "update", "from": f"{side.url}/{sender}", "to": ECHO}
    side.bus.post_message({**head, "body": {"value": number, **body}})


def hears(side: Side) -> list[tuple[int, bool]]:
    """What a side is told, and whether it came by a channel."""
    heard: list[tuple[int, bool]] = []

    def take(message: Message) -> None:
        body = message["body"]
        heard.append((body["value"], "/p2p" in body["via"]))

    side.bus.add_listener(ECHO, take)
    return heard


async def test_who_is_in_no_registry_is_heard_through_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other side of a channel would ask the registry for him, and refuse him."""
    async with two(monkeypatch) as (alice, bob):
        bob._claimed.add(ECHO)
        heard = hears(bob)
        registry(monkeypatch, alice, bob)
        tell(alice, 1, p2p=True)
        await until(lambda: alice.is_on_channel_with(bob))
        alice.bus.unregistered.add(f"{alice.url}/nobody")
        tell(alice, 2, "nobody")
        tell(alice, 3)
        await until(lambda: len(heard) == 3)
        assert sorted(heard) == [(1, False), (2, False), (3, True)]
        told = alice.p2p.explain(ECHO, f"{alice.url}/nobody")
        assert told[0] == "node"
        assert told[1].startswith("The sender is not registered")


async def test_a_channel_is_used_for_an_address_as_long_as_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        bob._claimed.add(ECHO)
        asked, heard = registry(monkeypatch, alice, bob), hears(bob)
        tell(alice, 1, p2p=True)
        await until(lambda: alice.is_on_channel_with(bob))
        whereabouts, now = alice.p2p._whereabouts, asyncio.get_running_loop().time()
        whereabouts._known[ECHO] = whereabouts._known[ECHO][0], now - 1  # ten minutes have passed
        for number in range(2, 5):
            tell(alice, number)
        await until(lambda: len(heard) == 4)
        assert heard == [(1, False), (2, True), (3, True), (4, True)]
        assert asked == [ECHO, ECHO] and whereabouts.of(ECHO)


async def test_case_p17_what_one_sender_says_of_his_receivers_runtime_leads_no_other_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 3) as (alice, bob, eve):
        bob._claimed.add(ECHO)
        asked, of_bob, of_eve = registry(monkeypatch, alice, bob), hears(bob), hears(eve)
        tell(alice, 1, "other", p2p=True, p2pHandler=eve.p2p.handler)
        await until(lambda: alice.is_on_channel_with(eve))
        tell(alice, 2, "other")
        tell(alice, 3)
        await until(lambda: of_eve and len(of_bob) == 2)
        assert (of_eve, of_bob, asked) == ([(2, True)], [(1, False), (3, False)], [])
        tell(alice, 4, p2p=True)
        await until(lambda: alice.is_on_channel_with(bob))
        tell(alice, 5, "other")  # the registry knows better
        await until(lambda: len(of_bob) == 4)
        assert of_bob[2:] == [(4, False), (5, True)] and len(of_eve) == 1 and asked == [ECHO]


async def test_case_p48_nor_does_it_let_the_other_end_of_a_channel_speak_as_that_receiver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 3) as (alice, bob, eve):
        bob._claimed.add(ECHO)
        hears(bob)
        registry(monkeypatch, alice, bob)
        came: list[Message] = []
        alice.bus.add_listener(f"{alice.url}/heard", came.append)
        tell(alice, 1, p2p=True, p2pHandler=eve.p2p.handler)
        await until(lambda: eve.is_on_channel_with(alice))
        head: Message = {"id": 1, "type": "update", "from": ECHO, "to": f"{alice.url}/heard"}
        eve.peer(alice).send({**head, "body": {"value": 9}}, 10)
        await until(lambda: alice.faults)
        await settled()
        await turn()
        assert [each.reason for each in alice.faults] == ["p2p.forged"] and not came


async def test_what_went_through_the_node_is_not_overtaken_once_it_is_known_where_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob))
        bob._claimed.add(ECHO)
        heard = hears(bob)
        bob.hold_from(lambda message: message["to"] == ECHO)  # the node takes its time
        tell(alice, 1)
        await until(lambda: bob._held)
        record = {"runtime": bob.url, "p2pHandler": bob.p2p.handler}
        alice.p2p._whereabouts.note(ECHO, record)
        for number in range(2, 5):
            tell(alice, number)
        for _ in range(20):
            await turn()
        assert heard == []
        bob.let_in()
        await until(lambda: len(heard) == 4)
        assert heard == [(1, False), (2, True), (3, True), (4, True)]
        assert alice.faults == bob.faults == []

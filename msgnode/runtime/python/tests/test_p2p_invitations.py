"""Invitations of who lies about who he is, of many at once, and of who is hung up on meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bus_harness import turn, until
from test_p2p_set_up import FakeConnection, Side, two

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.p2p.settings import P2PTimers
from msgnode.runtime.python.p2p.states import State


@asynccontextmanager
async def several(monkeypatch: pytest.MonkeyPatch, count: int) -> AsyncIterator[list[Side]]:
    monkeypatch.setattr(set_up, "RtcConnection", FakeConnection)
    monkeypatch.setattr(FakeConnection, "made", [])
    sides: list[Side] = []
    for _ in range(count):
        Side(sides, P2PTimers())
    yield sides
    for side in sides:
        await side.p2p.close()
    assert not any(each.is_open for each in FakeConnection.made)


async def settled(times: int = 100) -> None:
    for _ in range(times):
        await turn()


async def invite(inviter: Side, invited: Side, number: int, **said: Any) -> list[int]:
    """Invite by hand; returns the code of the answer, as soon as it is there."""
    url, codes = f"connection://d/{inviter.url[-1]}-{number}", []
    inviter._claimed.add(f"{url}/subscription")
    inviter.bus.add_listener(f"{url}/subscription", lambda message: None)
    source = said.pop("source", f"runtime://d/p2prequester/{inviter.url[-1]}")
    value = {"runtime": inviter.url, "p2pHandler": inviter.p2p.handler, "epoch": "e", **said}
    head: Message = {"type": "create", "from": f"{url}/subscription", "to": invited.p2p.handler}
    inviter.bus.post_message(
        {**head, "body": {"source": source, "value": value}},
        lambda answer: codes.append(answer["body"]["code"]),
    )
    await settled()
    return codes


async def test_case_p58_of_forty_that_invite_at_once_thirty_two_get_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 41) as (hub, *others):
        for other in others:
            other.want(hub)
        await settled(300)
        assert sum(each.link.is_open for each in hub.p2p.known.values()) == 32
        assert sum("failed" in each.states for each in others) == 8


async def test_who_invites_in_the_name_of_another_uses_up_none_of_his_invitations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 3) as (alice, bob, eve):
        named = {"runtime": alice.url, "p2pHandler": alice.p2p.handler}
        for number in range(20):
            stub = f"runtime://d/p2prequester/{number}"
            said = {"protocol": "msgnode.1", "source": stub, **named}
            assert await invite(eve, bob, number, **said) == [200]
        for number in range(20, 40):
            await invite(eve, bob, number, **named)  # as of the field, where nobody can be asked
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))


async def test_runtimes_of_the_field_begin_eight_set_ups_at_a_time_whatever_they_call_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 3) as (alice, bob, eve):
        codes = [await invite(eve, bob, each, runtime=f"runtime://d/x{each}") for each in range(40)]
        assert codes == [[200]] * 8 + [[429]] * 32
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))


async def test_case_p58_a_stub_invites_ten_times_a_minute_though_its_runtime_denies_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with several(monkeypatch, 2) as (eve, bob):
        codes = [await invite(eve, bob, each, protocol="msgnode.1") for each in range(11)]
        assert codes == [[200]] * 10 + [[429]]


@pytest.mark.parametrize(
    ("source", "code"),
    [("runtime://d/1/p2phandler/x", 403), ("runtime://d/1/app", 400), ("hyperty://d/x", 400)],
)
async def test_an_invitation_comes_from_a_stub_and_from_no_other_runtimes(
    monkeypatch: pytest.MonkeyPatch, source: str, code: int
) -> None:
    async with several(monkeypatch, 3) as (alice, bob, eve):
        source = alice.p2p.handler if code == 403 else source
        assert await invite(eve, bob, 1, protocol="msgnode.1", source=source) == [code]
        bob.want(alice)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))


async def test_case_p50_no_channel_opens_with_who_is_hung_up_on_while_his_invitation_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        bob.hold_from(lambda message: "data" in message["body"].get("value", {}))
        alice.want(bob)
        await until(lambda: bob._held)
        head = {"type": "execute", "from": "domain://msg-node.d/p2p", "to": bob.p2p.handler}
        body = {"method": "disconnect", "params": [{"peer": alice.url}]}
        bob.bus.receive({"id": 1, **head, "body": body}, bob._stub)
        await settled()
        bob.let_in()
        await settled()
        assert bob.states == ["created", "failed"] and not bob.is_on_channel_with(alice)
        assert not any(each.is_open for each in FakeConnection.made)
        assert not bob.p2p._set_ups._objects and bob.peer(alice).handling is None


async def test_a_channel_that_opens_at_the_moment_of_the_order_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        accept = FakeConnection.accept

        async def accepting(connection: FakeConnection, answered: Any) -> None:
            await accept(connection, answered)
            bob.peer(alice).forbid()
            alice.peer(bob).forbid()

        monkeypatch.setattr(FakeConnection, "accept", accepting)
        alice.want(bob)
        await until(lambda: "failed" in alice.states)
        await settled()
        assert not bob.is_on_channel_with(alice) and not alice.is_on_channel_with(bob)
        assert "live" not in (*alice.states, *bob.states)


async def test_case_p28_a_set_up_that_is_begun_anew_does_not_fail_with_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alice's runtime starts again while Bob handles her invitation."""
    async with two(monkeypatch, P2PTimers(answer=0.3)) as (alice, bob):
        alice.hold_from(lambda message: message["type"] == "subscribe")
        alice.want(bob)
        await until(lambda: alice._held)
        alice._held.clear()
        alice.peer(bob).dialling.cancel()  # type: ignore[union-attr]
        await settled()
        alice.peer(bob).state = State.NONE
        alice.want(bob)
        await until(lambda: bob.peer(alice).attempt == 2 and alice._held)
        await until(lambda: len(bob.p2p._set_ups._working) == 1)
        assert bob.states == ["created", "created"]
        alice.let_in()
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        assert bob.peer(alice).state == "live"

"""Two runtimes set a connection up over a fake node and a fake channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bus_harness import turn, until

from msgnode.runtime.python.faults import Fault
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to, copy_of
from msgnode.runtime.python.p2p import set_up
from msgnode.runtime.python.p2p.peer_to_peer import PeerToPeer
from msgnode.runtime.python.p2p.remote_runtime import RemoteRuntime
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from msgnode.runtime.python.p2p.states import Redials
from msgnode.runtime.python.settings import Settings


class FakeConnection:
    """A peer connection whose other end is in the same process."""

    made: list[FakeConnection] = []

    def __init__(self, *_: Any) -> None:
        self.on_open = self.on_low = self.on_close = self.on_end = lambda: None
        self.on_frame: Callable[[Any], None] = lambda frame: None
        self.other: FakeConnection | None = None
        self.is_open = False
        self.made.append(self)

    def described(self) -> dict[str, str]:
        return {"sdp": str(self.made.index(self)), "type": ""}

    async def offer(self) -> dict[str, str]:
        return self.described()

    async def answer(self, offered: Any) -> dict[str, str]:
        self.other = self.made[int(offered["sdp"])]
        return self.described()

    async def accept(self, answered: Any) -> None:
        self.other = self.made[int(answered["sdp"])]
        for each in (self.other, self):
            each.is_open = True
            asyncio.get_running_loop().call_soon(each.on_open)

    def send(self, frame: Any) -> None:
        other = self.other
        assert other is not None
        if self.is_open and other.is_open:
            asyncio.get_running_loop().call_soon(lambda: other.on_frame(frame))

    def has_room(self) -> bool:
        return True

    def close(self) -> None:
        self.on_open = self.on_close = lambda: None
        self.on_frame = lambda frame: None
        was_open, self.is_open = self.is_open, False
        if was_open and self.other is not None:
            asyncio.get_running_loop().call_soon(self.other.on_close)
        self.on_end()

    async def closed(self) -> None:
        """It is closed at once."""


class Side:
    """A runtime, and the node as it sees it: what comes to it may be held for a while."""

    def __init__(self, sides: list[Side], timers: P2PTimers, url: str = "") -> None:
        sides.append(self)
        self._sides = sides
        self.url = url or f"runtime://d/{len(sides)}"
        self.registered: dict[str, Message] = {}  # what registries answer
        self._stub = f"runtime://d/protostub/{len(sides)}"
        self.bus = MessageBus(self.url)
        self.settings = Settings("d")
        self.faults: list[Fault] = []
        self.states: list[str] = []
        self._claimed: set[str] = set()
        self._held: list[Message] = []
        self._holds: Callable[[Message], bool] = lambda message: False
        self.refusal = 0  # code that invitations are answered with instead of being delivered
        self.invitations = 0  # that came
        self.bus.on_error(self.faults.append)
        self.bus.add_listener(f"{self.url}/status", self._told)
        self.bus.add_listener(f"{self.url}/app", lambda message: None)
        self.p2p = PeerToPeer(P2PSettings(timers=timers), self)  # type: ignore[arg-type]

    def _told(self, message: Message) -> None:
        self.states.append(message["body"]["value"])

    def send(self, message: Message, size: int, stub: str) -> str:
        """What goes out, through the node."""
        to, body = message["to"], message["body"]
        if to.startswith("domain:"):
            if message["type"] == "subscribe":
                self._claimed.update(body.get("resources") or body.get("subscribe"))
            answer = answer_to(message, 200, "")
            answer["body"]["value"] = self.registered.get(body.get("resource", ""))
            self._bring(answer)
            return self._stub
        for side in self._sides:
            if to in side._claimed or to.startswith(f"{side.url}/"):
                is_invitation = message["type"] == "create" and "/p2phandler/" in to
                side.invitations += is_invitation
                if is_invitation and side.refusal:
                    self._bring(answer_to(message, side.refusal, "refused"))
                else:
                    side._bring(copy_of(message)[0])
                break
        return self._stub

    def _bring(self, message: Message) -> None:
        if self._held or self._holds(message):
            self._held.append(message)
        else:
            asyncio.get_running_loop().call_soon(self.bus.receive, message, self._stub)

    def hold_from(self, holds: Callable[[Message], bool]) -> None:
        """Hold what comes, from the first message on of which this is true."""
        self._holds = holds

    def let_in(self) -> None:
        """All that was held comes at once."""
        held, self._held, self._holds = self._held, [], lambda message: False
        assert held
        for message in held:
            self.bus.receive(message, self._stub)

    def want(self, other: Side) -> None:
        """Have a channel set up."""
        named = {"p2p": True, "p2pHandler": other.p2p.handler, "p2pRequester": "x"}
        head = {"type": "update", "from": f"{self.url}/app", "to": f"{other.url}/app"}
        self.bus.post_message({**head, "body": named})

    def peer(self, other: Side) -> RemoteRuntime:
        return self.p2p.known[other.url]

    def is_on_channel_with(self, other: Side) -> bool:
        return other.url in self.p2p.known and self.peer(other).link.way == "channel"


@asynccontextmanager
async def two(
    monkeypatch: pytest.MonkeyPatch, timers: P2PTimers | None = None
) -> AsyncIterator[tuple[Side, Side]]:
    monkeypatch.setattr(set_up, "RtcConnection", FakeConnection)
    monkeypatch.setattr(FakeConnection, "made", [])
    sides: list[Side] = []
    alice, bob = (Side(sides, timers or P2PTimers()) for _ in range(2))
    yield alice, bob
    for side in sides:
        await side.p2p.close()
    assert not any(each.is_open for each in FakeConnection.made)


async def test_case_p26_both_invite_while_each_confirms_the_others_invitation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bob is late: what each is told of the other's invitation comes at once."""
    async with two(monkeypatch) as (alice, bob):
        bob.hold_from(lambda message: message["body"].get("method") == "confirm")
        bob.want(alice)
        await until(lambda: bob._held)
        alice.want(bob)
        await until(lambda: any(each["type"] == "create" for each in bob._held))
        alice.hold_from(lambda message: True)
        bob.let_in()
        await until(lambda: any(e["body"].get("method") == "confirm" for e in alice._held))
        alice.let_in()
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        assert alice.peer(bob).is_requester and not bob.peer(alice).is_requester
        assert "failed" not in (*alice.states, *bob.states)
        assert alice.faults == bob.faults == []


async def test_case_p33_who_was_dialled_before_it_dialled_again_itself_has_nothing_left_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Redials, "next", lambda redials, now, jitter: 0.2)
    async with two(monkeypatch) as (alice, bob):
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        rtc: Any = alice.peer(bob)._rtc
        rtc.on_close()
        await until(lambda: alice.peer(bob).link.way == bob.peer(alice).link.way == "node")
        assert alice.peer(bob).has_redial
        bob.want(alice)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        epoch = alice.peer(bob).link.epoch
        await until(lambda: not alice.peer(bob).has_redial)
        await turn()
        assert alice.peer(bob).link.epoch == epoch and not alice.peer(bob).is_requester
        assert alice.faults == bob.faults == []


@asynccontextmanager
async def lost(
    monkeypatch: pytest.MonkeyPatch, refusal: int
) -> AsyncIterator[tuple[Side, Side, RemoteRuntime]]:
    """Two whose channel has ended, and of whom the second refuses to be invited."""
    monkeypatch.setattr(Redials, "next", lambda redials, now, jitter: 0.01)
    monkeypatch.setattr("random.random", lambda: 0.01)
    async with two(monkeypatch, P2PTimers(quarantine=0.01)) as (alice, bob):
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        bob.refusal, bob.invitations = refusal, 0
        rtc: Any = alice.peer(bob)._rtc
        rtc.on_close()
        await until(lambda: "failed" in alice.states)
        yield alice, bob, alice.peer(bob)


async def test_case_p55_who_is_away_is_dialled_until_he_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lost(monkeypatch, 503) as (alice, bob, peer):
        await until(lambda: bob.invitations >= 3)
        assert peer.is_lost and peer.is_needed()
        bob.refusal = 0
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        assert alice.states.count("live") == 2 and not alice.peer(bob).is_lost


async def test_case_p20_who_refuses_is_dialled_no_more_and_nobody_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lost(monkeypatch, 403) as (_, bob, peer):
        assert bob.invitations == 1 and not peer.is_lost and not peer.is_needed()
    async with lost(monkeypatch, 503) as (alice, bob, peer):
        peer.redials.span = 0.0  # the time in which it is tried is over
        await until(lambda: not peer.is_needed())
        assert alice.states[-1] == "failed" and not peer.is_lost


async def test_case_p50_who_is_ordered_to_hang_up_dials_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lost(monkeypatch, 503) as (_, bob, peer):
        await until(lambda: peer.has_redial)
        peer.forbid()
        before = bob.invitations
        await until(lambda: not peer.has_redial)
        await turn()
        assert bob.invitations == before


async def test_case_p29_the_connection_with_a_process_that_ended_is_not_dialled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the handler the other one of the same runtime URL would answer."""
    monkeypatch.setattr(Redials, "next", lambda redials, now, jitter: 0.01)
    async with two(monkeypatch) as (alice, bob):
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        older = alice.peer(bob)
        older.instance = "older"
        assert not alice.p2p._known.instance(bob.url, "newer", bob.p2p.handler)
        assert alice.p2p._new_remote(bob.url, bob.p2p.handler) is not older
        bob.invitations = 0
        rtc: Any = older._rtc
        rtc.on_close()
        assert older.has_redial
        await until(lambda: not older.has_redial)
        await turn()
        assert older.dialling is None and bob.invitations == 0


async def test_case_p33_a_set_up_of_the_other_side_in_the_place_of_a_try_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Redials, "next", lambda redials, now, jitter: 0.2)
    async with two(monkeypatch, P2PTimers(set_up=0.5)) as (alice, bob):
        alice.want(bob)
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        peer = alice.peer(bob)
        rtc: Any = peer._rtc
        rtc.on_close()
        await until(lambda: peer.link.way == bob.peer(alice).link.way == "node")
        alice.hold_from(lambda message: "data" in message["body"].get("value", {}))
        bob.invitations = 0
        bob.want(alice)
        await until(lambda: alice._held)
        assert peer.has_redial
        await until(lambda: not peer.has_redial)
        assert peer.state == "created" and not peer.is_requester
        await until(lambda: peer.has_redial)
        assert peer.state == "failed" and bob.invitations == 0
        alice.let_in()
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
        assert alice.peer(bob).is_requester and bob.invitations == 1


async def test_case_p20_a_try_that_comes_too_early_is_made_when_the_other_side_may_be_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with lost(monkeypatch, 503) as (alice, bob, peer):
        await until(lambda: peer.has_redial)
        alice.p2p._set_ups._quarantine.failed(bob.url, asyncio.get_running_loop().time())
        bob.refusal = 0
        await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))

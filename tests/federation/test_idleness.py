"""A stub that nobody needs ends, and is there again as soon as somebody does."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import ServerConnection

from msgnode.federation.exchange import ASKED_SECONDS, Idleness, PeerExchange
from msgnode.federation.held_subscriptions import HeldSubscriptions
from msgnode.federation.monitoring import STUCK_SECONDS, PeerAlarms
from msgnode.federation.queue import PeerQueue

from .links import THEIRS, A, B, Played, linked
from .sandboxes import needs_deno, stub
from .test_peer_exchange import OURS, message, response

SECONDS = 600.0
ROOM, CHANGES = f"comm://{B}/room", f"comm://{B}/room/changes"


class Place:
    """What a stub has to do, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        queue = PeerQueue(100, 100_000, self._clock)
        self.exchange = PeerExchange(A, B, queue, lambda _: None, self._clock)
        self.asked: list[dict[str, Any]] = []
        observed: Any = SimpleNamespace(answered=lambda *_: None, missed=lambda *_: None)
        self.subscriptions = HeldSubscriptions(
            B, f"runtime://{A}/mn-1", self._ask, observed, lambda: None, self._clock
        )
        self.idleness = Idleness(SECONDS, self.exchange, self.subscriptions, self._clock)

    def ends_after(self, seconds: float) -> bool:
        """Whether the stub may end when so much time has passed, looked at before too."""
        self.idleness.is_over()
        self.now += seconds
        return self.idleness.is_over()

    def answer(self) -> None:
        """The peer grants what it was asked last."""
        request = self.asked[-1]
        answer = message(request["to"], request["from"], "response", request["id"], code=200)
        assert self.subscriptions.take(answer)

    def _clock(self) -> float:
        return self.now

    def _ask(self, frame: bytes) -> None:
        self.asked.append(json.loads(frame))


def test_its_time_begins_anew_with_each_message_either_way() -> None:
    place = Place()
    assert not place.ends_after(SECONDS - 1)
    place.exchange.put(message(OURS, THEIRS))
    place.exchange.take()
    place.exchange.taken_in(response())
    assert not place.ends_after(SECONDS - 1)
    place.exchange.taken_in(message(ROOM, CHANGES, "update"))
    assert not place.ends_after(SECONDS - 1)
    assert place.ends_after(1)


def test_it_stays_while_a_message_waits_or_a_response_may_still_come() -> None:
    place = Place()
    place.exchange.put(message(OURS, THEIRS))
    assert not place.ends_after(SECONDS * 2)
    place.exchange.take()
    assert not place.ends_after(ASKED_SECONDS)
    place.now += 1
    place.exchange.expire()
    assert place.ends_after(SECONDS)


def test_it_stays_while_something_is_subscribed_there() -> None:
    place = Place()
    place.subscriptions.want([CHANGES])
    assert not place.ends_after(SECONDS * 2), "it is to be asked"
    place.subscriptions.pump()
    place.answer()
    assert not place.ends_after(SECONDS * 2), "it is held"
    place.subscriptions.leave([CHANGES])
    assert not place.ends_after(SECONDS * 2), "the peer has yet to be told"
    place.subscriptions.pump()
    place.answer()
    assert place.ends_after(SECONDS)


@needs_deno
@pytest.mark.asyncio
async def test_case_35_a_sandbox_that_nobody_needs_ends_and_the_next_message_starts_it() -> None:
    peer = Played()
    async with linked(stub("resumes"), peer, idle=0.5) as one:
        await one.live()
        for times in (1, 2):
            sandbox, socket = one.link.sandbox, peer.links[-1]
            counters = one.link.exchange.counters
            before = one.link.failures_in_a_row, counters.restarts  # a busy machine starts it late
            assert sandbox is not None
            await one.until(lambda: one.link.state == "idle")
            assert not psutil.pid_exists(sandbox.pid)
            assert sandbox.memory_bytes == 0
            await one.until(lambda socket=socket: socket.close_code is not None)
            assert socket.close_code == 1000, "the stub has said good-bye"
            assert (one.link.failures_in_a_row, counters.restarts) == before
            one.post(times, "update", CHANGES)  # an event: nobody is waited for
            await one.until(lambda times=times: peer.values == list(range(1, times + 1)))
            await one.live()


@needs_deno
@pytest.mark.asyncio
async def test_case_35_a_subscription_there_keeps_it() -> None:
    async def answers(message: dict[str, Any], link: ServerConnection) -> None:
        if message["type"] == "subscribe":
            answer = {"id": message["id"], "type": "response", "from": message["to"]}
            await link.send(json.dumps({**answer, "to": message["from"], "body": {"code": 200}}))

    peer = Played(answers)
    async with linked(stub("resumes"), peer, idle=0.3) as one:
        await one.until(lambda: one.link.state == "idle")
        one.link.subscriptions.want([CHANGES])
        await one.until(lambda: CHANGES in one.link.subscriptions.held)
        assert one.link.state == "live"
        states = set()
        until = one.link.exchange._clock() + 1.5
        await one.until(lambda: states.add(one.link.state) or one.link.exchange._clock() > until)
        assert states == {"live"}


@needs_deno
@pytest.mark.asyncio
async def test_an_idle_peer_keeps_its_session_here_and_begins_anew_when_somebody_says_so() -> None:
    peer = Played()
    async with linked(stub("resumes"), peer, idle=0.3) as one:
        await one.until(lambda: one.link.state == "idle")
        one.link._outgoing(message("hyperty://c.example/1", THEIRS).frame)
        assert one.link.exchange.counters.refused == 1, "what is refused needs no stub"
        one.node.link.close(4403, "by an operator")
        await one.until(lambda: one.node.opened == 2)
        assert one.link.state == "idle"
        one.link.restart()
        await one.until(lambda: len(peer.links) == 2)


def test_no_alarm_stands_for_a_peer_that_is_idle() -> None:
    raised: list[str] = []
    cleared: list[str] = []
    now = 0.0
    queue = PeerQueue(10, 10_000)
    exchange = PeerExchange(A, B, queue, lambda _: None)
    link: Any = SimpleNamespace(
        peer=SimpleNamespace(domain=B), state="idle", exchange=exchange, failures_in_a_row=0,
        last_error="",
    )  # fmt: skip
    alarms = PeerAlarms(
        lambda kind, *_: raised.append(kind), lambda kind, _: cleared.append(kind), lambda: now
    )
    alarms.look(link)
    now = STUCK_SECONDS * 10
    alarms.look(link)
    assert raised == []
    assert cleared, "what another worker has raised"
    link.state = "disconnected"
    now += STUCK_SECONDS
    alarms.look(link)
    assert raised == ["peer-stuck"]

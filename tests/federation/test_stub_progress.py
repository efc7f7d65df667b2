"""A stub that loads and never says that it is live is ended, told of, counted and begins anew."""

from __future__ import annotations

import time

import pytest

from msgnode.federation.monitoring import FAILING_AFTER, PeerAlarms
from msgnode.federation.sockets import HEARTBEAT_SECONDS, SILENCE_SECONDS
from msgnode.federation.states import (
    CONNECTING,
    DISCONNECTED,
    LIVE,
    LIVE_SECONDS,
    STARTING,
    TABLE,
    Action,
    Event,
    StubClock,
)
from msgnode.storage.alarms import FAILING_ALARM

from .links import B, Played, linked
from .sandboxes import needs_deno, stub

SHORT = 0.4
MUTE = stub("resumes").replace(
    'this.status("live")', 'if (this.token !== "refused") this.status("live")'
)


class Timed(StubClock):
    """With a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        super().__init__(clock=lambda: self.now)
        self.begin()

    def late_after(
        self, seconds: float, state: str, sockets: int = 1, is_open: bool = True
    ) -> bool:
        """Whether it is late when it has been in a state for so long."""
        late_at = self.moments(state, sockets, is_open)[Event.IS_LATE]
        self.now += seconds
        return self.now >= late_at


@pytest.mark.parametrize("state", [STARTING, CONNECTING, DISCONNECTED])
def test_a_stub_with_an_open_socket_is_late_exactly_at_its_limit(state: str) -> None:
    progress = Timed()
    assert not progress.late_after(LIVE_SECONDS - 0.01, state)
    assert progress.late_after(0.01, state)


def test_a_stub_that_asks_for_no_socket_is_late_whatever_it_says() -> None:
    for state in (STARTING, CONNECTING, DISCONNECTED, LIVE):
        progress = Timed()
        assert not progress.late_after(LIVE_SECONDS - 0.01, state, 0, is_open=False)
        assert progress.late_after(0.01, state, 0, is_open=False)


def test_while_its_socket_is_being_opened_no_time_passes_for_a_stub() -> None:
    progress = Timed()
    for _ in range(10):
        assert not progress.late_after(LIVE_SECONDS, DISCONNECTED, 1, is_open=False)
    assert progress.late_after(LIVE_SECONDS, DISCONNECTED, 2), "one of two is open"


def test_a_stub_that_was_live_has_its_whole_time_again() -> None:
    progress = Timed()
    assert not progress.late_after(10 * LIVE_SECONDS, LIVE)
    assert not progress.late_after(LIVE_SECONDS - 0.01, DISCONNECTED)
    assert progress.late_after(0.01, DISCONNECTED)


def test_a_peer_can_begin_from_every_state_and_each_event_and_action_has_a_use() -> None:
    follow = {state: {then for then, _ in row.values()} for state, row in TABLE.items()}
    for state in TABLE:
        reached, before = {state}, set()
        while reached != before:
            before, reached = reached, reached | {each for one in reached for each in follow[one]}
        assert LIVE in reached, state
    assert {event for row in TABLE.values() for event in row} == set(Event)
    assert {action for row in TABLE.values() for _, action in row.values()} == set(Action)


def test_a_frozen_peer_loses_its_socket_before_the_stub_is_blamed() -> None:
    assert LIVE_SECONDS >= SILENCE_SECONDS + HEARTBEAT_SECONDS


@needs_deno
@pytest.mark.asyncio
async def test_a_stub_that_is_never_live_is_ended_and_tried_again_until_it_is() -> None:
    peer = Played(token="refused")
    async with linked(MUTE, peer, live=SHORT) as one:
        one.post(1)
        await one.until(lambda: one.link.state == "waiting")
        assert one.link.last_error == "it was not live within 0.4 s"
        assert one.link.exchange.counters.restarts == 1
        assert not peer.heard, "nothing was handed to it"
        peer.token = "taken"
        await one.live()
        await one.until(lambda: peer.values == [1])
        assert one.link.failures_in_a_row >= 1  # more, where a start takes longer than that


@needs_deno
@pytest.mark.asyncio
async def test_who_has_waited_for_it_is_told_why_and_an_operator_after_five_times() -> None:
    alarms: list[tuple[str, str, str]] = []
    looks = PeerAlarms(lambda *alarm: alarms.append(alarm), lambda *_: None)
    async with linked(MUTE, Played(token="refused"), live=SHORT) as one:
        one.link._restarts.failures = FAILING_AFTER - 1
        one.post(1)
        await one.until(lambda: one.link.state == "waiting")
        one.link.exchange.queue._clock = lambda: time.monotonic() + 11  # its ten seconds are over
        one.link._look()
        await one.until(lambda: one.node.said)
        body = one.node.said[0]["body"]
        assert body["code"] == 504
        assert body["description"].endswith("its stub ended, it was not live within 0.4 s.")
        looks.look(one.link)
        kind, domain, text = alarms[0]
        assert (kind, domain) == (FAILING_ALARM, B)
        assert "it was not live within 0.4 s" in text


@needs_deno
@pytest.mark.asyncio
async def test_a_stub_that_asks_for_no_socket_and_says_nothing_is_ended_too() -> None:
    silent = "export default class { _start() {} connect() {} }"
    async with linked(silent, Played(), live=SHORT) as one:
        await one.until(lambda: one.link.state == "waiting")
        assert one.link.last_error == "it was not live within 0.4 s"


@needs_deno
@pytest.mark.asyncio
@pytest.mark.parametrize("then", ["", "this.connect = () => {}; this.socket.close();"])
async def test_what_was_asked_through_a_stub_that_does_not_come_back_is_answered(then: str) -> None:
    """It says that it is disconnected, while its socket is open, or asks for no other one."""
    leaves = stub("resumes").replace(
        "this.socket?.readyState === 1 && this.send(message)",
        f'{{ this.send(message); this.status("disconnected"); {then} }}',
    )
    peer = Played()
    async with linked(leaves, peer, live=SHORT) as one:
        await one.live()
        one.post(1)
        await one.until(lambda: one.node.said)
        body = one.node.said[0]["body"]
        assert body["code"] == 503
        assert "it was not live within 0.4 s" in body["description"]
        assert peer.values == [1]
        await one.live()

"""When peers are told to leave the direct connections of a session, and when they are not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from msgnode.bus.pipeline import invite
from msgnode.bus.ports import NoPolicies
from msgnode.bus.table import RoutingTable
from msgnode.core.errors import TooMany, Unavailable
from msgnode.core.identity import Identity, Speaker
from msgnode.sessions.hang_ups import HangUps
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import Event, State
from msgnode.sessions.session import MAX_INVITED, LiveSession, SessionLimits
from msgnode.sessions.session_factory import SessionSettings, SessionState, session_of, state_of
from tests.fakes import FakeRecorder, FakeSession

ALICE = Identity("https://idp.example", "s-1", "alice@example.org", expires=100.0)
HANDLER = "runtime://localhost/bob/p2phandler/1"


class Place:
    """Alice's session, Bob's, and a clock."""

    def __init__(self, identity: Identity | None = ALICE) -> None:
        self.now = 0.0
        self.table = RoutingTable()
        self.recorder = FakeRecorder()
        nothing: Any = None
        settings = SessionSettings("always", True, True, 1, 1000, 1, 1, "domain://d")
        sessions = SessionManager(settings, self.table, nothing, nothing)
        self.hang_ups = HangUps(
            "localhost", sessions, self.table, NoPolicies(), self.recorder, now=lambda: self.now
        )
        url = "runtime://localhost/alice"
        speaker, limits = Speaker("1", url, identity=identity), SessionLimits(1000, stores=True)
        self.alice = LiveSession(speaker, "ws", "h", limits, State.OPEN)
        self.bob: Any = FakeSession("runtime://localhost/bob")
        self.table.add_runtime(self.bob)
        sessions.sessions[self.alice.id] = self.alice
        self.hang_ups.session_identified(self.alice)
        invite(self.alice, HANDLER, (self.bob,))

    def close(self, event: Event) -> None:
        self.alice.step(event)
        self.hang_ups.session_closed(self.alice, "over")

    def orders(self) -> list[Any]:
        frames = [json.loads(each) for each in self.bob.frames]
        assert all(each["from"] == "domain://msg-node.localhost/p2p" for each in frames)
        assert all((each["type"], each["to"]) == ("execute", HANDLER) for each in frames)
        return [each["body"] for each in frames]


PEER = {"peer": "runtime://localhost/alice"}
ORDER = {"method": "disconnect", "params": [PEER], "auth": False}


def test_case_p50_who_logs_out_is_hung_up_on_once() -> None:
    place = Place()
    place.alice.speaker = place.alice.speaker.without_identity()
    for _ in range(2):
        place.hang_ups.session_identified(place.alice)
    assert place.orders() == [ORDER]
    assert [row.component for row in place.recorder.rows] == ["p2p"]
    place.close(Event.END)  # nothing is left to end
    assert place.orders() == [ORDER]


def test_case_p50_an_identity_ends_with_its_time_and_a_new_login_puts_that_off() -> None:
    place = Place()
    place.now = 90.0
    later = replace(ALICE, expires=200.0)
    place.alice.speaker = replace(place.alice.speaker, identity=later)
    place.hang_ups.session_identified(place.alice)
    place.now = 150.0
    place.hang_ups.look()
    assert place.orders() == []
    place.now = 201.0
    place.hang_ups.look()
    place.hang_ups.look()
    assert place.orders() == [ORDER]


@pytest.mark.parametrize(
    ("event", "expected"), [(Event.END, [ORDER]), (Event.CLOSE, []), (Event.EXPIRE, [])]
)
@pytest.mark.parametrize("identity", [ALICE, None])
def test_only_a_session_that_the_node_ends_is_hung_up_on(
    event: Event, expected: list[Any], identity: Identity | None
) -> None:
    place = Place(identity)
    if event is Event.EXPIRE:
        place.alice.step(Event.LOSE)
    place.close(event)
    assert place.orders() == expected
    place.now = 1e9
    place.hang_ups.look()
    assert place.orders() == expected


def test_who_was_anonymous_may_log_in_and_out() -> None:
    place = Place(None)
    for identity in (ALICE, None):
        place.alice.speaker = replace(place.alice.speaker, identity=identity)
        place.hang_ups.session_identified(place.alice)
    assert place.orders() == []


def test_whom_a_session_has_invited_goes_with_it_to_another_worker() -> None:
    place = Place()
    packed = msgspec.msgpack.encode(state_of(place.alice))
    place.hang_ups.session_handed_off(place.alice.id)
    arrived = session_of(
        msgspec.msgpack.decode(packed, type=SessionState), SessionLimits(1000, stores=True)
    )
    assert arrived.invited == {HANDLER: True}
    place.now = 101.0
    place.hang_ups.look()
    assert place.orders() == []  # the other worker's affair


def test_an_invitation_to_who_is_away_is_not_noted() -> None:
    place = Place()
    place.bob.is_connected = False
    with pytest.raises(Unavailable):
        invite(place.alice, f"{HANDLER}0", (place.bob,))
    assert list(place.alice.invited) == [HANDLER]


def test_who_invites_more_than_are_remembered_is_hung_up_on_by_the_first_of_them() -> None:
    place = Place()
    for number in range(MAX_INVITED - 1):
        invite(place.alice, f"{HANDLER}-{number}", (place.bob,))
    place.hang_ups.look()
    assert place.orders() == []
    invite(place.alice, f"{HANDLER}-x", (place.bob,))
    for _ in range(2):
        place.hang_ups.look()
        assert place.orders() == [ORDER]
    assert len(place.alice.invited) == MAX_INVITED and HANDLER not in place.alice.invited


def test_who_invites_more_at_once_than_can_be_told_is_refused() -> None:
    place = Place()
    for number in range(2 * MAX_INVITED - 1):
        invite(place.alice, f"{HANDLER}-{number}", (place.bob,))
    with pytest.raises(TooMany):
        invite(place.alice, f"{HANDLER}-x", (place.bob,))
    invite(place.alice, HANDLER, (place.bob,))  # one that it has invited before
    assert len(place.alice.invited) == 2 * MAX_INVITED
    place.hang_ups.look()
    invite(place.alice, f"{HANDLER}-x", (place.bob,))

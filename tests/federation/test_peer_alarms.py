"""When an alarm stands for a peer, and when it is cleared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.federation.monitoring import (
    AGAIN_SECONDS,
    FAILING_AFTER,
    FAILING_ALARM,
    LOOP_ALARM,
    SPOOF_ALARM,
    STUCK_ALARM,
    STUCK_SECONDS,
    WAITING_SECONDS,
    PeerAlarms,
)

B = "b.example"


class Place:
    """The alarms that stand, and a peer whose state is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.standing: dict[str, str] = {}
        self.raised = 0
        self.alarms = PeerAlarms(self._raise, self._clear, lambda: self.now)
        self.link: Any = SimpleNamespace(
            peer=SimpleNamespace(domain=B), state="live", failures_in_a_row=0, last_error="why",
            exchange=SimpleNamespace(queue=_Queue(), returned=0, spoofed=0),
        )  # fmt: skip

    def _raise(self, kind: str, subject: str, text: str) -> None:
        assert subject == B
        self.standing[kind] = text
        self.raised += 1

    def _clear(self, kind: str, subject: str) -> None:
        self.standing.pop(kind, None)

    def look(self, seconds: float = 0.0) -> set[str]:
        self.now += seconds
        self.alarms.look(self.link)
        return set(self.standing)


class _Queue:
    oldest_seconds = 0.0

    def __len__(self) -> int:
        return 3


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_peer_that_is_away_for_a_minute_is_stuck_until_it_is_live(place: Place) -> None:
    place.look()
    place.link.state = "disconnected"
    assert place.look(STUCK_SECONDS / 2) == set()
    place.link.state = "connecting"
    assert place.look(STUCK_SECONDS / 2) == {STUCK_ALARM}
    assert "3 messages wait: why" in place.standing[STUCK_ALARM]
    place.look(100)
    assert place.raised == 1
    place.link.state = "live"
    assert place.look() == set()


def test_a_peer_that_comes_and_goes_is_not_stuck(place: Place) -> None:
    for _ in range(20):
        place.link.state = "live"
        place.look(STUCK_SECONDS - 1)
        place.link.state = "connecting"
        assert place.look(STUCK_SECONDS - 1) == set()


def test_a_peer_that_does_not_read_is_stuck_though_it_is_live(place: Place) -> None:
    place.look()
    place.link.exchange.queue.oldest_seconds = WAITING_SECONDS
    assert place.look() == {STUCK_ALARM}
    place.link.exchange.queue.oldest_seconds = 0.0
    assert place.look() == set()


def test_messages_that_wait_for_a_peer_that_is_away_are_told_before_the_minute(
    place: Place,
) -> None:
    place.look()
    place.link.state = "disconnected"
    place.link.exchange.queue.oldest_seconds = WAITING_SECONDS
    assert place.look(WAITING_SECONDS) == {STUCK_ALARM}
    assert "is away (disconnected): 3 messages wait" in place.standing[STUCK_ALARM]
    place.link.state, place.link.exchange.queue.oldest_seconds = "live", 0.0
    assert place.look() == set()


def test_case_34_a_stub_that_fails_again_and_again_stands_until_it_is_live(place: Place) -> None:
    place.link.state, place.link.failures_in_a_row = "waiting", FAILING_AFTER
    assert place.look() == {FAILING_ALARM}
    place.link.state = "live"
    assert place.look(30.0) == {FAILING_ALARM}, "as it was before each of its ends"
    assert (place.look(), place.raised) == ({FAILING_ALARM}, 1)
    place.link.failures_in_a_row = 0
    assert place.look() == set()


def test_alarms_of_the_worker_before_are_cleared_by_the_one_that_is_live(place: Place) -> None:
    place.standing = {STUCK_ALARM: "by another worker"}
    assert place.look() == set()


def test_a_peer_for_which_no_worker_has_room_is_told_of_once_that_lasts(place: Place) -> None:
    def left(seconds: float) -> bool:
        place.now += seconds
        return place.alarms.has_no_room(B, "Each is full.")

    assert [left(0.0), left(STUCK_SECONDS - 1), left(1.0), left(1.0)] == [False, False, True, False]
    assert "not served. Each is full." in place.standing[STUCK_ALARM]
    place.alarms.served_elsewhere(B)
    assert place.standing, "whoever serves it clears what stands"
    assert [left(0.0), left(STUCK_SECONDS)] == [False, True]
    place.alarms.served_elsewhere(B)
    assert place.look() == set(), "it is live here"


def test_alarms_go_with_the_peer(place: Place) -> None:
    place.link.state = "waiting"
    place.look()
    assert place.look(STUCK_SECONDS) == {STUCK_ALARM}
    place.alarms.forget(B)
    assert not place.standing
    assert place.look() == set(), "the minute begins anew"


@pytest.mark.parametrize(("counts", "kind"), [("returned", LOOP_ALARM), ("spoofed", SPOOF_ALARM)])
def test_what_a_peer_says_as_ours_is_told_once_a_minute_and_stays(
    place: Place, counts: str, kind: str
) -> None:
    assert place.look() == set()
    setattr(place.link.exchange, counts, 1)
    assert place.look(1.0) == {kind}
    setattr(place.link.exchange, counts, 500)
    assert (place.look(AGAIN_SECONDS - 1), place.raised) == ({kind}, 1)
    place.look(1.0)
    assert place.raised == 2
    assert (place.look(600.0), place.raised) == ({kind}, 2)
    place.alarms.forget(B)
    assert kind in place.standing, "a person clears it"

"""Sessions that end, or lose their socket: one that cannot be ended keeps no other from it."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from msgnode.bus.ports import DeliveryResult
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import Event, State
from msgnode.sessions.session import LiveSession, SessionLimits
from msgnode.sessions.session_factory import SessionSettings
from tests.fakes import FakeLink


class Store:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def closed(self, session: LiveSession, reason: str) -> None:
        self.ended.append(session.id)

    def detached(self, session: LiveSession) -> None:
        """Nobody waits for it."""


def sessions(number: int) -> tuple[SessionManager, Store]:
    store: Any = Store()
    settings = SessionSettings("always", True, True, 0, 1000, 10, 10, "domain://d")
    life = SessionManager(settings, RoutingTable(), store, lambda *_: None)
    for each in range(number):
        speaker = Speaker(str(each), f"runtime://d/{each}")
        limits = SessionLimits(1000, stores=True)
        session = LiveSession(speaker, "", "", limits, State.ARRIVING)
        life.adopt(session)
    return life, store


def test_the_expiry_goes_on_behind_a_session_that_cannot_be_ended() -> None:
    life, store = sessions(3)

    def broken(self: LiveSession, event: object) -> None:
        raise RuntimeError("broken")

    failures = FAULTS.counts["session"]
    life.sessions["1"].__class__ = type("Broken", (LiveSession,), {"__slots__": (), "step": broken})
    life.expire(100)
    assert store.ended == ["0", "2"]
    assert life.sessions == {}
    assert FAULTS.counts["session"] == failures + 1


def test_all_hear_of_an_end_whoever_of_them_fails() -> None:
    life, store = sessions(1)
    heard: list[str] = []

    def broken(session: LiveSession, reason: str) -> None:
        raise RuntimeError("broken")

    life.on_closed += [broken, lambda session, _: heard.append(session.id)]
    life.expire(100)
    assert heard == store.ended == ["0"]


def test_sessions_expire_in_portions_so_that_others_get_their_turn() -> None:
    life, store = sessions(5)
    assert [life.expire(2) for _ in range(3)] == [True, True, False]
    assert store.ended == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("ends", ["closed", "handed off"])
def test_a_session_that_has_ended_takes_no_frame_and_nobody_is_charged_for_one(ends: str) -> None:
    life, _ = sessions(1)
    session = life.sessions["0"]
    assert session.deliver(b"{}") is DeliveryResult.QUEUED
    if ends == "closed":
        life.close(session, Event.END, "ended")
    else:
        life.release(session)
        life.hand_off("0")
    assert session.deliver(b"{}") is DeliveryResult.DROPPED
    assert life.queues.bytes == 0


@pytest.mark.parametrize("has_asked", [False, True])
@pytest.mark.parametrize("ends", ["closed", "handed off"])
def test_a_session_that_has_ended_goes_without_a_look_for_rings(ends: str, has_asked: bool) -> None:
    life, store = sessions(1)
    session = life.sessions["0"]
    if has_asked:
        session.ask("hyperty://d/a", b"1", "1", 0.0)
    over = weakref.ref(session)
    gc.disable()
    try:
        if ends == "closed":
            life.close(session, Event.END, "ended")
        else:
            life.release(session)
            life.hand_off("0")
        assert not session.has_asked("hyperty://d/a", "1", "1", 0.0)
        session.ask("hyperty://d/a", b"2", "1", 0.0)
        assert session.requests is None
        del session
        assert over() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("is_all_received", "has_dropped", "alarms"),
    [(True, False, 0), (False, False, 0), (True, True, 1), (False, True, 1)],
)
def test_a_broken_connection_leaves_a_gap_and_only_what_the_node_has_dropped_an_alarm(
    is_all_received: bool, has_dropped: bool, alarms: int
) -> None:
    life, _ = sessions(1)
    raised: list[tuple[str, ...]] = []
    life._raise_alarm = lambda *alarm: raised.append(alarm)
    session, link = life.sessions["0"], FakeLink()
    socket: Any = SimpleNamespace(
        link=link, session=session, closed_with=0, lose_session=lambda: None
    )
    session.state = State.OPEN
    session.attach(socket)
    link.is_all_received, session.outbox.has_gap = is_all_received, has_dropped
    life.lost(socket)
    assert session.outbox.has_gap is (has_dropped or not is_all_received)
    assert len(raised) == alarms

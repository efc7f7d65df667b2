"""What single sessions do is counted only while somebody looks, and bounded then."""

from __future__ import annotations

from typing import Any

import pytest

from msgnode.core.identity import Speaker
from msgnode.core.record import Outcome, TrafficRecord
from msgnode.monitoring.watched_sessions import (
    FAILURES_KEPT,
    MOST,
    PATIENCE,
    RATES_PATIENCE,
    SECONDS_KEPT,
    WatchedSessions,
)
from msgnode.sessions.flow_control import FlowControl, FlowLimits
from msgnode.sessions.session import LiveSession, SessionLimits


class Socket:
    """What a session knows of its connection."""

    is_held_back = False

    def __init__(self) -> None:
        self.flow = FlowControl(FlowLimits(100, 1e6, 10), "10.0.0.1", lambda: None)


class Taken:
    """A socket's writing end."""

    is_paused = False
    unsent_bytes = 0
    is_all_received = True
    on_pause = on_resume = staticmethod(lambda: None)

    def write(self, frame: bytes) -> None:
        pass


class Stage:
    def __init__(self) -> None:
        self.now = 100.0
        self.taps: list[Any] = []
        self.sessions: dict[str, LiveSession] = {}
        self.watch = WatchedSessions(self.sessions, "w:1", self.taps.append, lambda: self.now)

    def session(self, id_: str) -> LiveSession:
        speaker = Speaker(id_, f"runtime://a/{id_}", remote_address="10.0.0.1")
        session = LiveSession(speaker, "ws", "", SessionLimits(10_000, stores=True), token="t")
        session.socket = Socket()  # type: ignore[assignment]
        self.sessions[id_] = session
        return session

    def second(self) -> None:
        self.now += 1.0
        self.watch.turn()


def failed(session: str, to: str, code: int = 404, rule: str = "") -> TrafficRecord:
    outcome = Outcome.BLOCKED if rule else Outcome.UNDELIVERABLE
    return TrafficRecord(1.0, session, "1", "read", "a", to, 10, 0, outcome, "", code, rule=rule)


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_what_is_read_and_given_is_told_by_the_second(stage: Stage) -> None:
    session = stage.session("s")
    session.outbox.attach(Taken())  # type: ignore[arg-type]
    stage.watch.ask(["s"])
    for _ in range(3):
        session.socket.flow.frame_read(100)  # type: ignore[union-attr]
    session.deliver(b"x" * 50)
    stage.second()
    (told,) = stage.watch.ask(["s"])
    (sample,) = told.samples
    assert (sample.messages_in, sample.bytes_in) == (3, 300)
    assert (sample.messages_out, sample.bytes_out) == (1, 50)
    assert told.totals == (3, 300, 1, 50)
    stage.second()
    (told,) = stage.watch.ask(["s"])
    assert told.samples[-1].messages_in == 0


async def test_what_waits_for_a_session_without_a_socket_is_told(stage: Stage) -> None:
    session = stage.session("s")
    session.socket = None
    stage.watch.ask(["s"])
    session.deliver(b"x" * 50)
    stage.second()
    (told,) = stage.watch.ask(["s"])
    assert told.samples[-1].waiting > 50
    assert told.samples[-1].messages_out == 1


async def test_a_socket_that_is_new_counts_from_nothing(stage: Stage) -> None:
    session = stage.session("s")
    session.socket.flow.frame_read(500)  # type: ignore[union-attr]
    stage.watch.ask(["s"])
    session.socket = Socket()  # type: ignore[assignment]
    session.socket.flow.frame_read(7)
    stage.second()
    (told,) = stage.watch.ask(["s"])
    assert (told.samples[-1].messages_in, told.samples[-1].bytes_in) == (1, 7)


async def test_failures_alike_in_a_row_are_one_and_the_list_is_bounded(stage: Stage) -> None:
    stage.session("s")
    stage.watch.ask(["s"])
    (tap,) = stage.taps
    for _ in range(1_000):
        tap(failed("s", "comm://a/x"), b"")
    tap(failed("other", "comm://a/x"), b"")
    stage.second()
    (told,) = stage.watch.ask(["s"])
    assert [(each.to, each.count) for each in told.failures] == [("comm://a/x", 1_000)]
    assert told.samples[-1].failed == 1_000
    for number in range(FAILURES_KEPT + 5):
        tap(failed("s", f"comm://a/{number}", 403, "night"), b"")
    (told,) = stage.watch.ask(["s"])
    assert len(told.failures) == FAILURES_KEPT
    assert told.failures[-1].rule == "night"


async def test_the_pipeline_has_no_tap_once_nobody_asks(stage: Stage) -> None:
    stage.session("s")
    stage.watch.ask(["s"])
    stage.now += PATIENCE + 1
    stage.watch.turn()
    assert stage.taps[-1] is None
    assert stage.watch.ask(["s"])[0].samples == []


async def test_a_session_that_has_ended_is_left(stage: Stage) -> None:
    stage.session("s")
    stage.watch.ask(["s"])
    del stage.sessions["s"]
    stage.second()
    assert stage.taps[-1] is None
    assert stage.watch.ask(["s"]) == []


async def test_rings_and_the_number_of_watched_sessions_are_bounded(stage: Stage) -> None:
    for number in range(MOST + 3):
        stage.session(str(number))
    told = stage.watch.ask([str(number) for number in range(MOST + 3)])
    assert len(told) == MOST + 3
    for _ in range(SECONDS_KEPT + 10):
        stage.second()
        stage.watch.ask(["0"])
    (told_0,) = stage.watch.ask(["0"], is_whole=True)
    assert len(told_0.samples) == SECONDS_KEPT


async def test_rates_cover_the_time_between_two_looks_and_are_forgotten(stage: Stage) -> None:
    quiet, busy = stage.session("quiet"), stage.session("busy")
    assert busy.socket is not None
    assert [each.sent for each in stage.watch.rates(["quiet", "gone"], "", 0)] == [None]
    stage.watch.rates([], "sent", 10)
    for _ in range(10):
        busy.socket.flow.frame_read(50)
    stage.now += 5
    first, second = stage.watch.rates([], "sent", 10)
    assert (first.session, first.sent, first.received, first.bytes) == ("busy", 2.0, 0.0, 500)
    assert (second.session, second.sent) == ("quiet", 0.0)
    assert [each.session for each in stage.watch.rates([], "bytes", 1)] == ["busy"]
    busy.socket = Socket()  # type: ignore[assignment]  # which counts from nothing
    busy.socket.flow.frame_read(50)
    stage.now += 1
    (again,) = stage.watch.rates(["busy"], "", 0)
    assert again.sent == 1.0
    stage.now += RATES_PATIENCE
    stage.second()
    assert [each.sent for each in stage.watch.rates([quiet.id, "busy"], "", 0)] == [None, None]

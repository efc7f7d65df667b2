"""Rows of the record are counted on their way to whoever keeps them."""

from __future__ import annotations

from msgnode.bus.recording import CountingRecorder
from msgnode.core.record import Outcome, TrafficRecord
from tests.fakes import FakeRecorder


def row(type_: str, outcome: Outcome, size: int, latency: float) -> TrafficRecord:
    return TrafficRecord(0.0, "s", "1", type_, "a", "b", size, 1, outcome, latency=latency)


def test_rows_are_counted_by_type_and_outcome_and_passed_on() -> None:
    kept = FakeRecorder()
    counting = CountingRecorder(kept)
    rows = [
        row("create", Outcome.DELIVERED, 100, 0.001),
        row("create", Outcome.DELIVERED, 20, 0.002),
        row("update", Outcome.QUEUED, 3, 0.003),
    ]
    for each in rows:
        counting.note(each)
    assert counting.messages == {
        ("create", Outcome.DELIVERED): 2,
        ("update", Outcome.QUEUED): 1,
    }
    assert counting.bytes == 123
    assert kept.rows == rows


def test_without_anybody_who_keeps_them_they_are_counted_all_the_same() -> None:
    counting = CountingRecorder()
    counting.note(row("create", Outcome.DELIVERED, 100, 0.001))
    assert counting.bytes == 100

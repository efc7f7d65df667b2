"""Rows of the record are counted on their way to whoever keeps them."""

from __future__ import annotations

import pytest

from msgnode.bus.recording import CountingRecorder, Rows
from msgnode.core.addresses import MAX_LENGTH
from msgnode.core.envelope import MAX_ID_LENGTH, InvalidFrame
from msgnode.core.identity import Speaker
from msgnode.core.messages import parse
from msgnode.core.record import Outcome, TrafficRecord
from msgnode.node.monitoring import SetUpsInfo
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


def test_invitations_to_p2p_connections_are_counted_by_outcome() -> None:
    counting = CountingRecorder()
    for to, type_, outcome in [
        ("runtime://localhost/1/p2phandler/x", "create", Outcome.DELIVERED),
        ("runtime://localhost/1/p2phandler/x", "create", Outcome.DELIVERED),
        ("runtime://localhost/1/p2phandler/x", "create", Outcome.BLOCKED),
        ("runtime://localhost/1/p2phandler/x", "update", Outcome.DELIVERED),
        ("runtime://localhost/1/chat/p2phandler/x", "create", Outcome.DELIVERED),
        ("runtime://localhost/1", "create", Outcome.DELIVERED),
    ]:
        counting.note(TrafficRecord(0.0, "s", "1", type_, "a", to, 1, 1, outcome))
    assert counting.invitations == {Outcome.DELIVERED: 2, Outcome.BLOCKED: 1}
    info = SetUpsInfo(counting).update()
    assert (info.answered, info.failed) == (2, 1)


def test_what_is_no_address_is_noted_as_it_can_be_shown_and_within_bounds() -> None:
    """A report is JSON in the database, and PostgreSQL takes no zero byte there."""
    kept = FakeRecorder()
    frame = (
        rb'{"id":"%s","type":"create","from":"a\u0000b://c\u0000d/\u00e9","to":"%s","body":{}}'
        % (b"1" * 9_000, b"t" * 9_000)
    )
    with pytest.raises(InvalidFrame) as refused:
        parse(frame)
    Rows(kept).note_fault(refused.value, frame, Speaker("s", "runtime://d/1"), 0.0)
    (row,) = kept.rows
    assert row.sender == "a\ufffdb://c\ufffdd/\u00e9"
    assert (row.to, len(row.id), row.size) == ("t" * MAX_LENGTH, MAX_ID_LENGTH, len(frame))


def test_bytes_are_counted_once_in_and_once_for_each_listener_out() -> None:
    counting = CountingRecorder()
    for listeners in (0, 1, 3):
        counting.note(TrafficRecord(0.0, "s", "1", "create", "a", "b", 10, listeners, "delivered"))
    assert (counting.bytes, counting.copies, counting.bytes_out) == (30, 4, 40)


def test_seconds_are_counted_in_rising_classes() -> None:
    counting = CountingRecorder()
    bounds = counting.latencies.bounds
    assert list(bounds) == sorted(bounds)
    for latency in (0.0002, 0.0002, 5.0):
        counting.note(row("create", Outcome.DELIVERED, 1, latency))
    assert sum(counting.latencies.counts) == 3


def test_seconds_are_counted_in_buckets_from_microseconds_to_a_tenth() -> None:
    counting = CountingRecorder()
    for seconds in (10e-6, 0.05, 0.1, 0.2):
        counting.note(row("create", Outcome.DELIVERED, 1, seconds))
    assert dict(counting.latencies.cumulative()) == {
        **dict.fromkeys(["2e-05", "5e-05", "0.0001", "0.0003", "0.001", "0.003", "0.01"], 1),
        **{"0.1": 3, "+Inf": 4},
    }

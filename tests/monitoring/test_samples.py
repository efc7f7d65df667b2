"""Samples are joined and added up without losing a count; rings forget no more than they must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msgnode.core.record import Outcome, TrafficRecord
from msgnode.monitoring.samples import (
    HOUR,
    MINUTE,
    Rings,
    Sample,
    by_time,
    joined,
    of_all_workers,
    percentile,
)
from msgnode.monitoring.talkers import MOST, PATIENCE, WINDOW, Talkers
from msgnode.monitoring.taps import Taps
from tests.fakes import Clock


def sample(at: float, messages: int = 1, **more: object) -> Sample:
    return Sample(at=at, seconds=1.0, messages=messages, latencies=[messages, 0], **more)  # type: ignore[arg-type]


def test_spans_that_follow_one_another_add_counts_and_keep_the_last_levels() -> None:
    whole = joined([sample(1, 2, sockets=5), sample(2, 3, sockets=4)])
    assert (whole.at, whole.seconds, whole.messages, whole.sockets) == (2, 2.0, 5, 4)
    assert whole.latencies == [5, 0]


def test_workers_add_counts_and_levels() -> None:
    whole = of_all_workers([sample(1, 2, sockets=5), sample(1.4, 3, sockets=4)])
    assert (whole.at, whole.seconds, whole.messages, whole.sockets) == (1.4, 1.0, 5, 9)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.integers(1, 90))
def test_no_message_is_lost_or_counted_twice_by_joining(counts: list[int], step: int) -> None:
    rings = Rings()
    for number, count in enumerate(counts):
        rings.add(sample(1_000_000.3 + number, count))
    recent = rings.recent(step)
    assert sum(each.messages for each in recent) == sum(counts)
    both = by_time([recent, recent], step)
    assert sum(each.messages for each in both) == 2 * sum(counts)
    assert [each.at for each in both] == sorted(each.at for each in both)


def test_minutes_and_hours_are_handed_out_once_they_are_over() -> None:
    rings = Rings()
    over = [rings.add(sample(float(second))) for second in range(1, 2 * HOUR + 2)]
    minutes = [each[MINUTE] for each in over if MINUTE in each]
    hours = [each[HOUR] for each in over if HOUR in each]
    assert len(minutes) == 120
    assert {each.messages for each in minutes} == {60}
    assert [each.messages for each in hours] == [HOUR, HOUR]
    assert len(rings.seconds) == 900


def test_a_percentile_lies_between_the_limits_of_its_size() -> None:
    bounds = (1.0, 2.0, 4.0)
    assert percentile(0.5, [0, 0, 0, 0], bounds) == 0.0
    assert percentile(0.5, [0, 10, 0, 0], bounds) == 1.5
    assert percentile(0.99, [0, 0, 0, 5], bounds) == 4.0
    assert percentile(0.5, [1, 1, 1, 1], bounds) == 2.0


def record(sender: str = "runtime://d/a", to: str = "comm://d/x", code: int = 0) -> TrafficRecord:
    return TrafficRecord(0.0, "s1", "1", "update", sender, to, 100, 1, Outcome.DELIVERED, code=code,
                         runtime=sender)  # fmt: skip


def test_talkers_are_counted_while_somebody_asks_and_no_longer() -> None:
    clock = Clock()
    attached: list[object] = []
    talkers = Talkers(attached.append, clock)
    assert attached == []
    assert talkers.ask() == ([], [])
    see = attached[-1]
    assert callable(see)
    for number in range(10):
        see(record("runtime://d/loud"), b"")
        see(record("runtime://d/quiet", code=403), b"") if number == 0 else None
    clock.now = WINDOW
    talkers.turn()
    senders, addresses = talkers.ask()
    assert [(each.name, each.messages, each.failed) for each in senders] == [
        ("runtime://d/loud", 2.0, 0.0),
        ("runtime://d/quiet", 0.2, 0.2),
    ]
    assert [(each.name, each.messages) for each in addresses] == [("comm://d/x", 2.2)]
    clock.now += PATIENCE + 0.1
    talkers.turn()
    assert attached[-1] is None
    assert len(attached) == 2


def test_of_many_messages_a_few_are_looked_at_and_stand_for_all() -> None:
    clock = Clock()
    attached: list[object] = []
    talkers = Talkers(attached.append, clock)
    talkers.ask()
    see = attached[-1]
    assert callable(see)
    for _ in range(2):  # the first window tells how many there are
        for number in range(50_000):
            see(record("runtime://d/loud" if number % 4 else "runtime://d/quiet"), b"")
        clock.now += WINDOW
        talkers.ask()
        talkers.turn()
    (loud, quiet), _ = talkers.ask()
    assert (loud.name, quiet.name) == ("runtime://d/loud", "runtime://d/quiet")
    assert 6_000 < loud.messages < 9_000  # 7,500
    assert 1_800 < quiet.messages < 3_200  # 2,500


def test_talkers_count_no_more_names_than_they_have_room_for() -> None:
    attached: list[object] = []
    talkers = Talkers(attached.append, Clock())
    talkers.ask()
    see = attached[-1]
    assert callable(see)
    for number in range(MOST + 50):
        see(record(f"runtime://d/{number}", f"comm://d/{number}"), b"")
    assert len(talkers._senders) == len(talkers._addresses) == MOST


def test_a_tap_is_shared_and_what_one_observer_raises_is_its_own() -> None:
    attached: list[object] = []
    taps = Taps(attached.append)
    seen: list[str] = []

    def fails(record: TrafficRecord, body: bytes) -> None:
        raise ValueError("mine")

    taps.put("fails", fails)
    taps.put("sees", lambda record, body: seen.append(record.to))
    see = attached[-1]
    assert callable(see)
    see(record(), b"")
    assert seen == ["comm://d/x"]
    taps.put("fails", None)
    taps.put("sees", None)
    assert attached[-1] is None

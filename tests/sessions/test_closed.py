"""Of closed sessions the newest of each source, and of all, are kept."""

from __future__ import annotations

from msgnode.sessions.store import ClosedSessions


def test_the_oldest_of_a_source_goes_and_no_other_source_is_touched() -> None:
    closed = ClosedSessions(2, 100)
    assert closed.add(str(1), "192.0.2.1") == []
    assert closed.add(str(2), "192.0.2.2") == []
    assert closed.add(str(3), "192.0.2.1") == []
    assert closed.add(str(4), "192.0.2.1") == [str(1)]
    assert closed.add(str(5), "192.0.2.1") == [str(3)]
    assert len(closed) == 3


def test_the_oldest_of_all_goes_where_there_are_many_sources() -> None:
    closed = ClosedSessions(2, 3)
    gone = [closed.add(str(each), f"192.0.2.{each}") for each in range(1, 6)]
    assert gone == [[], [], [], [str(1)], [str(2)]]
    assert len(closed) == 3

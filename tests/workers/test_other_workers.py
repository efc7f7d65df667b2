"""Whose epochs count as ended: of those nobody has heard of, never of one that is just coming; and
whose leases have ended: never of one that was renewed, or as late as this worker was itself."""

from __future__ import annotations

from msgnode.workers.failover import LeaseWatch
from msgnode.workers.network import OtherWorkers


def test_only_who_is_heard_of_nowhere_has_ended() -> None:
    others: dict[str, object] = {}
    ended = OtherWorkers("me", others)
    assert ended.is_retired("other")
    assert not ended.is_retired("me")
    others["other"] = (
        object()
    )  # it comes: known as another worker before the database is read again
    assert not ended.is_retired("other")
    del others["other"]
    ended.registered = {"other"}
    assert not ended.is_retired("other")
    ended.registered = set()
    ended.dead.add("other")  # what it had is being taken
    assert not ended.is_retired("other")
    assert ended.is_dead("other")
    ended.dead.discard("other")
    assert ended.is_retired("other")
    assert not ended.is_dead("other")


def test_a_lease_is_overdue_that_was_seen_unchanged_for_as_long_as_it_runs() -> None:
    watch = LeaseWatch(3.0)
    assert watch.overdue({"one": 10, "other": 10}, 100.0, 0) == []
    assert watch.overdue({"one": 10, "other": 11}, 102.0, 0) == []
    assert watch.overdue({"one": 10, "other": 11}, 103.0, 0) == [], "not longer than it runs"
    assert watch.overdue({"one": 10, "other": 11}, 103.1, 0) == ["one"]
    assert watch.overdue({"one": 10, "other": 11}, 105.1, 0) == ["one", "other"]


def test_a_lease_that_was_renewed_once_more_is_watched_anew() -> None:
    watch = LeaseWatch(3.0)
    watch.overdue({"one": 10}, 100.0, 0)
    assert watch.overdue({"one": 13}, 104.0, 0) == []
    assert watch.overdue({"one": 13}, 107.1, 0) == ["one"]


def test_who_could_not_renew_its_own_lease_looks_anew() -> None:
    watch = LeaseWatch(3.0)
    watch.overdue({"one": 10}, 100.0, 0)
    assert watch.overdue({"one": 10}, 104.0, 1) == [], "the database was away for all"
    assert watch.overdue({"one": 10}, 107.1, 1) == ["one"]


def test_a_worker_that_has_gone_meanwhile_is_seen_for_the_first_time_when_it_is_there_again() -> (
    None
):
    watch = LeaseWatch(3.0)
    watch.overdue({"one": 10}, 100.0, 0)
    watch.overdue({}, 102.0, 0)
    assert watch.overdue({"one": 10}, 104.0, 0) == []

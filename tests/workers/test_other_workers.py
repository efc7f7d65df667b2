"""Whose epochs count as ended: of those nobody has heard of, never of one that is just coming."""

from __future__ import annotations

from msgnode.workers.other_workers import OtherWorkers


def test_only_who_is_heard_of_nowhere_has_ended() -> None:
    peers: dict[str, object] = {}
    ended = OtherWorkers("me", peers)
    assert ended.is_retired("other")
    assert not ended.is_retired("me")
    peers["other"] = object()  # it comes: known as a peer before the database is read again
    assert not ended.is_retired("other")
    del peers["other"]
    ended.registered = {"other"}
    assert not ended.is_retired("other")
    ended.registered = set()
    ended.dead.add("other")  # what it had is being taken
    assert not ended.is_retired("other")
    assert ended.is_dead("other")
    ended.dead.discard("other")
    assert ended.is_retired("other")
    assert not ended.is_dead("other")

"""What a worker says of a link to all others in its heartbeats, and what the other end of the link
reads from it: no loop, no layer."""

from __future__ import annotations

from typing import Any

import pytest

from msgnode.workers.linked_worker import DOWN, LinkedWorker

BEAT: dict[str, Any] = {
    **{"name": "other", "epoch": "other", "host": "host", "pid": 1, "inbox": "there"},
    **{"is_ready": True, "takes": True, "is_brief": True, "links": {}},
}
ALL_NAMED = {key: value for key, value in BEAT.items() if key != "is_brief"}  # the version before


def heard_of(beat: dict[str, Any]) -> LinkedWorker:
    made = LinkedWorker(beat, 1024)
    made.hear_beat(beat, "me")
    return made


def up(beat: dict[str, Any]) -> LinkedWorker:
    """A worker to which a stream has begun, asked whether it has all of its snapshot."""
    made = heard_of(beat)
    made.out.begin()
    made.is_up = made.is_synced = True
    made.snapshot_mark = 7
    return made


def test_a_link_is_named_until_the_other_end_has_acknowledged_its_snapshot() -> None:
    other = up(BEAT)
    assert other.beat_stream == other.out.stream
    other.acknowledge(6)  # of the stream before this one
    assert other.beat_stream == other.out.stream
    other.acknowledge(7)
    assert other.beat_stream is None


def test_what_is_settled_without_an_answer_is_no_acknowledgement() -> None:
    other = up(BEAT)
    other.settle(8)
    assert other.beat_stream == other.out.stream


def test_a_link_that_is_down_is_named_as_down() -> None:
    other = up(BEAT)
    other.acknowledge(7)
    other.is_up = False
    assert other.beat_stream == DOWN


def test_to_a_worker_of_the_version_before_every_link_is_named() -> None:
    other = up(ALL_NAMED)
    other.acknowledge(7)
    assert other.beat_stream == other.out.stream


def test_who_has_heard_nothing_of_a_worker_yet_does_not_know_what_it_has() -> None:
    assert not heard_of(BEAT).is_known
    assert not heard_of({**BEAT, "links": {"me": DOWN}}).is_known
    assert not heard_of(ALL_NAMED).is_known


@pytest.mark.parametrize(
    ("said", "is_known"),
    [
        ({**BEAT, "links": {}}, True),
        ({**BEAT, "links": {"third": 8}}, True),
        ({**BEAT, "links": {"me": 5}}, True),
        ({**BEAT, "links": {"me": 6}}, False),  # it has begun anew
        ({**BEAT, "links": {"me": DOWN}}, False),
        ({**ALL_NAMED, "links": {"me": 5}}, True),
        ({**ALL_NAMED, "links": {}}, False),  # the version before names all that are up
    ],
)
def test_what_a_beat_says_of_the_link_to_who_has_a_snapshot(
    said: dict[str, Any], is_known: bool
) -> None:
    other = heard_of(BEAT)
    other.known_stream = 5
    other.hear_beat(said, "me")
    assert other.is_known is is_known

"""Failures that are kept to one: counted, logged some seconds apart, and seen to repeat."""

from __future__ import annotations

import pytest

from msgnode.core.faults import REPEATS, RESET, WINDOW, Faults
from tests.fakes import Clock


def test_what_one_raises_does_not_reach_the_next() -> None:
    faults = Faults()
    done = []
    for each in (1, 0, 2):
        with faults.kept_to("link"):
            done.append(10 // each)
    assert done == [10, 5]
    assert faults.counts == {"link": 1}


def test_a_part_repeats_when_it_fails_often_within_the_window() -> None:
    clock = Clock()
    faults = Faults(clock)
    for _ in range(REPEATS - 1):
        faults.note("link")
    faults.note("session")
    assert faults.repeating() == {}
    faults.note("link")
    assert faults.repeating() == {"link": REPEATS}
    clock.now = WINDOW
    assert faults.repeating() == {}


def test_resets_by_peers_are_counted_and_are_no_repetition() -> None:
    faults = Faults()
    for _ in range(10 * REPEATS):
        faults.note(RESET)
    assert faults.counts[RESET] == 10 * REPEATS
    assert faults.repeating() == {}


def test_a_flood_of_failures_is_no_flood_of_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    faults = Faults(clock)
    for _ in range(1000):
        faults.note("link", ValueError("broken"))
    assert len(caplog.records) == 1
    clock.now = 11.0
    faults.note("link", ValueError("still broken"))
    assert len(caplog.records) == 2

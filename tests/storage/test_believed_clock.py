"""A clock that has jumped deletes nothing, is told, and is believed again when it goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from msgnode.models import Alarm
from msgnode.storage.believed_clock import ALARM, LONGEST_PAUSE, STEADY, Clock, believed_now, looked

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)


def standing() -> list[str]:
    return list(Alarm.objects.filter(kind=ALARM, cleared_at=None).values_list("text", flat=True))


@pytest.fixture(autouse=True)
def place(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path / "clock.json"


@pytest.mark.parametrize(
    ("pause", "is_believed"),
    [(HOUR, True), (LONGEST_PAUSE, True), (LONGEST_PAUSE + HOUR, False), (-LONGEST_PAUSE, True)],
)
def test_so_long_nothing_may_have_run(pause: timedelta, is_believed: bool) -> None:
    assert (looked(Clock(NOW, NOW), NOW + pause).since is None) is is_believed


@pytest.mark.django_db
def test_a_year_ahead_nothing_more_is_deleted_until_the_clock_is_right_again() -> None:
    assert believed_now(NOW) == NOW
    for hours in range(3):
        assert believed_now(NOW + YEAR + hours * HOUR) == NOW
    (text,) = standing()
    assert "2027-11-20 12:00" in text or "2027-11-20 14:00" in text
    assert "2026-11-20 12:00" in text
    assert believed_now(NOW + 5 * HOUR) == NOW + 5 * HOUR
    assert standing() == []


@pytest.mark.django_db
def test_a_clock_that_goes_on_steadily_is_believed_again() -> None:
    """As of a node that was away for a year."""
    believed_now(NOW)
    back = NOW + YEAR
    for hours in range(STEADY // HOUR):
        assert believed_now(back + hours * HOUR) == NOW
    assert believed_now(back + STEADY) == back + STEADY
    assert standing() == []


def test_one_that_jumps_again_is_not_steady() -> None:
    clock = looked(Clock(NOW, NOW), NOW + YEAR)
    clock = looked(clock, NOW + YEAR + STEADY)
    assert (clock.believed, clock.since) == (NOW, NOW + YEAR + STEADY)
    clock = looked(clock, NOW + YEAR)
    assert (clock.believed, clock.since) == (NOW, NOW + YEAR)


@pytest.mark.django_db
def test_a_clock_that_is_set_back_deletes_less_and_is_no_alarm() -> None:
    believed_now(NOW)
    assert believed_now(NOW - YEAR) == NOW - YEAR
    assert standing() == []
    assert believed_now(NOW + HOUR) == NOW + HOUR


@pytest.mark.django_db
def test_where_nothing_is_remembered_the_newest_data_tell_when_all_was_well(place: Path) -> None:
    assert believed_now(NOW + YEAR, newest=NOW) == NOW
    place.write_text("half of")
    assert believed_now(NOW, newest=NOW - HOUR) == NOW
    place.unlink()
    assert believed_now(NOW) == NOW

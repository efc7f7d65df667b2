"""Periods of reports begin and follow one another as calendars say, in leap years too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from spark.jobs import periods
from spark.jobs.ledger_tiers import TIERS, Tier
from spark.jobs.periods import Kind


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("year", [2023, 2024, 2025])
def test_each_moment_lies_in_one_period(kind: Kind, year: int) -> None:
    start = periods.start_of(kind, datetime(year, 1, 1, tzinfo=UTC))
    many = 0
    while start < datetime(year + 1, 1, 1, tzinfo=UTC):
        end = periods.after(kind, start)
        assert periods.start_of(kind, start) == start < end
        assert periods.start_of(kind, end - timedelta(microseconds=1)) == start
        assert periods.before(kind, end) == start
        start, many = end, many + 1
    days = 366 if year == 2024 else 365
    assert many in {
        Kind.HOURLY: (24 * days,), Kind.DAILY: (days,), Kind.WEEKLY: (53, 54),
        Kind.MONTHLY: (12,), Kind.YEARLY: (1,),
    }[kind]  # fmt: skip


def test_the_last_full_year_is_the_one_that_is_over() -> None:
    assert periods.last_full(Kind.YEARLY, datetime(2027, 1, 1, 2, tzinfo=UTC)).year == 2026
    assert periods.last_full(Kind.YEARLY, datetime(2026, 12, 31, 23, tzinfo=UTC)).year == 2025


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.folder)
def test_entries_of_a_tier_have_names_of_their_own(tier: Tier) -> None:
    at = tier.floor(datetime(2024, 2, 28, 22, 10, tzinfo=UTC))
    names = set()
    for _ in range(40):
        names.add((f"{at:{tier.file}}", f"{at:{tier.key}}"))
        at = tier.after(at)
    assert len(names) == 40

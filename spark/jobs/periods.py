"""Periods of reports in UTC: hours, days, weeks from Monday, months, years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of reports, by the length of their period."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    YEARLY = "yearly"


def utc_time(text: str) -> datetime:
    """The time that a text of ISO 8601 names, in UTC unless it says otherwise.

    Raises:
        ValueError: It names none.
    """
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def start_of(kind: Kind, moment: datetime) -> datetime:
    """The start of the period that `moment` lies in."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    match kind:
        case Kind.HOURLY:
            return hour
        case Kind.DAILY:
            return day
        case Kind.WEEKLY:
            return day - timedelta(days=day.weekday())
        case Kind.MONTHLY:
            return day.replace(day=1)
        case Kind.YEARLY:
            return day.replace(month=1, day=1)


def after(kind: Kind, start: datetime) -> datetime:
    """The start of the period that follows the one that begins at `start`."""
    match kind:
        case Kind.HOURLY:
            return start + timedelta(hours=1)
        case Kind.DAILY:
            return start + timedelta(days=1)
        case Kind.WEEKLY:
            return start + timedelta(days=7)
        case Kind.MONTHLY:
            return start_of(kind, start + timedelta(days=32))
        case Kind.YEARLY:
            return start_of(kind, start + timedelta(days=366))


def before(kind: Kind, start: datetime) -> datetime:
    """The start of the period before the one that begins at `start`."""
    return start_of(kind, start - timedelta(microseconds=1))


def last_full(kind: Kind, now: datetime) -> datetime:
    """The start of the last period that is over."""
    return before(kind, start_of(kind, now))


HISTORY = timedelta(days=28)
"""How far a report looks back: for what an hour is expected to carry, and who is new."""

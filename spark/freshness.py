"""Checks how old the reports are, and raises an alarm when the schedule is late.

Lateness is judged by runs, because an hour without traffic has no report; if the last run is no
longer stored, as that of a year, by its report. The sweep checks every minute, and each worker of
the node every few minutes, so that a dead beat or Celery worker is noticed too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models import F, Max
from django.utils import timezone

from msgnode.bus.periodic import every
from msgnode.storage import alarms
from msgnode.storage.database_threads import in_any_thread
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun

ALARM = "reports-late"
WATCH_SECONDS = 300.0
CATCH_UP = timedelta(days=35)
SLACK = {
    Kind.HOURLY: timedelta(minutes=45),
    Kind.DAILY: timedelta(hours=4),
    Kind.WEEKLY: timedelta(hours=12),
    Kind.MONTHLY: timedelta(hours=24),
    Kind.YEARLY: timedelta(hours=72),
}


@dataclass(frozen=True, slots=True)
class Freshness:
    """covered: end of the last period a run made reports of. is_late: more was due by now."""

    kind: Kind
    covered: datetime | None
    is_late: bool


def of(kind: Kind, now: datetime) -> Freshness:
    """How fresh the reports of a kind are. Those of a period that is not over cover nothing yet."""
    runs = ReportRun.objects.filter(kind=kind, state=ReportRun.State.DONE, end__lte=now)
    reports = Report.objects.filter(kind=kind, end__lte=now, made_at__gte=F("end"))  # kept longer
    ends = [rows.aggregate(last=Max("end"))["last"] for rows in (runs, reports)]
    last = max((end for end in ends if end is not None), default=None)
    scheduled = _scheduled_at(f"spark.{kind}")
    if scheduled is None:
        return Freshness(kind, last, is_late=False)
    since = max(last, scheduled) if last else scheduled
    due = periods.after(kind, periods.start_of(kind, since.astimezone(UTC)))
    return Freshness(kind, last, is_late=now > due + SLACK[kind])


def _scheduled_at(task: str) -> datetime | None:
    """When the schedule of a task was last changed, None if it is not scheduled.

    Asked without the models of django-celery-beat, because a worker does not load Celery.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT date_changed FROM django_celery_beat_periodictask"
            " WHERE task = %s AND enabled ORDER BY id LIMIT 1",
            [task],
        )
        row: tuple[datetime] | None = cursor.fetchone()
    return None if row is None else row[0].replace(tzinfo=row[0].tzinfo or UTC)


def first_missing(kind: Kind, last: datetime) -> datetime:
    """The start of the first period, up to that which begins at `last`, that has no reports yet.

    At most CATCH_UP back: where nothing ran, or runs failed, the schedule makes up for it.
    """
    covered = of(kind, timezone.now()).covered
    if covered is None:
        return last
    return min(last, periods.start_of(kind, max(covered, last - CATCH_UP).astimezone(UTC)))


def look() -> list[Freshness]:
    """The freshness of all kinds; raises or clears their alarms. Blocks."""
    now = timezone.now()
    found = [of(kind, now) for kind in Kind]
    for each in found:
        if each.is_late:
            until = f"{each.covered:%Y-%m-%d %H:%M} UTC" if each.covered else "never"
            text = f"The {each.kind} traffic report is late; the last one covers up to {until}."
            alarms.raise_alarm(ALARM, str(each.kind), text)
        else:
            alarms.clear_alarm(ALARM, str(each.kind))
    return found


async def watch_reports() -> None:
    """Look every few minutes, in a thread: the job of a worker of the node."""
    says = "The age of the reports is not known"
    await every(WATCH_SECONDS, lambda: in_any_thread(look), "reports", says)

"""The Celery tasks of the reports: they start runs and wait for them; Spark has its own process.

A task that the broker loses does no harm: the sweep finds the row of its run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from msgnode.storage.believed_clock import believed_now
from spark import freshness, report_runs
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import ReportRun


@shared_task(name="spark.run")
def run(pk: int) -> str:
    """Run what waits under this number, then have the next one run.

    Nothing is done if it is taken, or if another one runs.
    """
    done = report_runs.execute(pk)
    for waiting in report_runs.sweep()[:1] if done else ():
        run.delay(waiting)
    return done.state if done else "not ours"


def _scheduled(kind: Kind) -> Any:
    """The task that makes the report of the last full period, and of earlier ones that lack."""

    @shared_task(name=f"spark.{kind}")
    def make() -> str:
        last = report_runs.last_full(kind)
        start, end = freshness.first_missing(kind, last), periods.after(kind, last)
        waiting = report_runs.queue(kind, start, end, trigger=ReportRun.Trigger.SCHEDULE)
        return run(waiting.pk)

    return make


hourly, daily, weekly, monthly, yearly = map(_scheduled, Kind)


@shared_task(name="spark.sweep")
def sweep() -> int:
    """Take up what waits, and look whether the schedule is kept."""
    waiting = report_runs.sweep()
    for pk in waiting[:1]:  # the others wait for its end: one runs at a time
        run.delay(pk)
    freshness.look()
    return len(waiting)


@shared_task(name="spark.retention")
def retain() -> dict[str, Any]:
    """Delete raw rows, roll-ups and reports that are kept no longer.

    Not on the word of a clock that has jumped.
    """
    # Arrow is loaded for this task, not by every program
    from msgnode.traffic import retention as raw_rows
    from spark import retention

    record = settings.RECORD
    now = believed_now(timezone.now(), retention.newest_day(record["URL"]))
    uncounted: list[datetime] = []

    def told(hour: datetime) -> None:
        if not retention.is_counted(record["URL"], hour):
            uncounted.append(hour)

    try:
        raw_hours = raw_rows.delete_old(
            record["URL"], now, days=record["RAW_DAYS"], max_bytes=record["MAX_BYTES"], told=told
        )
    finally:
        retention.tell_uncounted(uncounted)
    return {
        "raw hours": raw_hours,
        "roll-up": retention.delete_old_roll_ups(record["URL"], now, settings.REPORTS["KEPT_DAYS"]),
        "reports": retention.delete_old_reports(now),
    }

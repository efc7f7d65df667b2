"""`manage.py report_run daily`: make a report here and now; no worker needs to run."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from msgnode.console.command_base import WithExample
from msgnode.traffic.recorder import raw_url
from spark import pages, report_runs
from spark.jobs import periods
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun


class Command(WithExample):
    example = """  manage.py report_run hourly
  manage.py report_run daily --from 2026-11-20
  manage.py report_run weekly --json | jq '.[0].totals'"""
    help = "Create traffic reports, by default for the last full period that has rows."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("kind", choices=[str(kind) for kind in Kind])
        parser.add_argument(
            "--from", dest="start", type=_time, help="start, UTC, as 2026-11-20T13:00"
        )
        parser.add_argument("--to", dest="end", type=_time, help="end, UTC; default: one period")
        parser.add_argument(
            "--again",
            action="store_true",
            help="compute from the rows again, even if the report is up to date",
        )
        parser.add_argument("--json", action="store_true", help="print the figures as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        kind = Kind(options["kind"])
        start = options["start"] or _last_with_rows(kind)
        if start is None:
            raise CommandError("There are no rows in the traffic record yet.")
        trigger = ReportRun.Trigger.COMMAND
        try:
            run = report_runs.queue(
                kind, start, options["end"], trigger=trigger, again=options["again"]
            )
        except report_runs.NoSuchPeriod as fault:
            raise CommandError(str(fault)) from fault
        self._quiet = options["json"]
        while run.state not in ReportRun.OVER:
            if report_runs.execute(run.pk, self._tell) is None:
                self._tell(run, "waiting for the previous run")
                time.sleep(2)
                report_runs.sweep()
            run.refresh_from_db()
        if run.state != ReportRun.State.DONE:
            raise CommandError(f"The run {run.state}: {run.error}")
        made = Report.objects.filter(kind=kind, start__gte=run.start, start__lt=run.end)
        reports = list(made.order_by("start"))
        if options["json"]:
            self.stdout.write(json.dumps([report.figures for report in reports], indent=2))
            return
        seconds = run.duration.total_seconds() if run.duration else 0
        self.stdout.write(
            f"{run.rows_read} rows read, {run.hours_rolled} hours rolled up in {seconds:.1f} s, "
            f"peak memory of all its processes {run.peak_memory_mb} MB"
        )
        if run.warning:
            self.stderr.write(
                f"Raw files are missing or could not be read; so are their rows:\n{run.warning}"
            )
        for report in reports:
            self.stdout.write(
                f"{report}: {report.rows} rows in {report.hours_recorded} of "
                f"{report.hours_of_period} hours: /admin/spark/report/{report.pk}/change/"
            )
            if incomplete := pages.incomplete_text(report.figures):
                self.stdout.write(
                    f"  {report.hours_incomplete} hours lack rows, for raw files are missing or "
                    f"could not be read: {incomplete}"
                )
        if not reports:
            self.stdout.write("There were no rows in that period.")

    def _tell(self, run: ReportRun, step: str = "") -> None:
        if not self._quiet and sys.stderr.isatty():
            self.stderr.write(f"{run.progress:4.0%} {step or run.step}")


def _time(text: str) -> datetime:
    try:
        return periods.utc_time(text)
    except ValueError:
        what = f"{text!r} is not a date or time such as 2026-11-20 or 2026-11-20T13:00"
        raise ArgumentTypeError(what) from None


def _last_with_rows(kind: Kind) -> datetime | None:
    """The last full period with rows; the current one if rows are only there."""
    from pyarrow import fs

    from msgnode.traffic.files import files_below
    from msgnode.traffic.retention import hour_of
    from spark.jobs.places import place

    system, root = place(raw_url(settings.RECORD["URL"]))
    if system.get_file_info(root).type == fs.FileType.NotFound:
        return None
    found = {hour_of(file.path.removeprefix(root)) for file in files_below(system, root)}
    starts = {periods.start_of(kind, hour) for hour in found if hour}
    current = periods.start_of(kind, datetime.now(UTC))
    return max((start for start in starts if start < current), default=max(starts, default=None))

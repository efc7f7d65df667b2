"""Deletes old roll-ups and reports. A run's tables are deleted when no ledger names them."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.conf import settings
from pyarrow import fs

from msgnode.storage import alarms
from msgnode.tasks import delete_in_batches
from spark.jobs.ledger_tiers import HOURS, TIERS
from spark.jobs.periods import Kind
from spark.jobs.places import delete_folder, place
from spark.models import Report, ReportRun

log = logging.getLogger(__name__)

UNCOUNTED = "record-uncounted"
HOURLY_KEPT = timedelta(days=35)
"""As far back as the schedule makes reports that were missed; those of days go on from there."""
UNNAMED_KEPT = timedelta(days=1)
"""Tables that no ledger names may belong to a run that is under way."""


def newest_day(url: str) -> datetime | None:
    """The end of the newest day of the ledger, None if there is none."""
    system, root = place(f"{url.rstrip('/')}/roll-up")
    names = (file.base_name for file in _below(system, f"{root}/{HOURS.folder}"))
    days = []
    for name in names:
        with suppress(ValueError):
            days.append(datetime.strptime(name, f"{HOURS.file}.json").replace(tzinfo=UTC))
    return max(days) + timedelta(days=1) if days else None


def is_counted(url: str, hour: datetime) -> bool:
    """Whether the ledger has this hour, so that its rows are in reports. Not known is yes."""
    system, root = place(f"{url.rstrip('/')}/roll-up")
    try:
        with system.open_input_stream(f"{root}/{HOURS.folder}/{hour:{HOURS.file}}.json") as stream:
            return f"{hour:{HOURS.key}}" in json.loads(stream.read())
    except FileNotFoundError:
        return False
    except (ValueError, TypeError):
        return True


def tell_uncounted(hours: list[datetime]) -> None:
    """Raise an alarm that these hours were deleted before a report counted them. Blocks."""
    if hours:
        text = (
            f"{len(hours)} hours of the record, {min(hours):%Y-%m-%d %H:%M} to "
            f"{max(hours):%Y-%m-%d %H:%M} UTC, were deleted because of their age or for room, and "
            "no run had counted them: their messages are in no report."
        )
        alarms.raise_alarm(UNCOUNTED, f"{max(hours):%Y-%m-%d}", text)


def delete_old_roll_ups(url: str, now: datetime, days: int) -> int:
    """Delete ledgers older than `days` and tables that none of the others names; how many."""
    system, root = place(f"{url.rstrip('/')}/roll-up")
    named: set[str] = set()
    deleted, is_known = 0, True
    oldest = now - timedelta(days=days)
    for tier in TIERS:
        for file in _below(system, f"{root}/{tier.folder}"):
            if not file.base_name.endswith(".json") or file.base_name.startswith(("_", ".")):
                continue
            name = file.base_name.removesuffix(".json")
            if name < f"{oldest:{tier.file}}":
                with suppress(FileNotFoundError):  # another worker does the same
                    system.delete_file(file.path)
                log.info("deleted a part of the roll-up", extra={"of": tier.folder, "part": name})
                deleted += 1
            else:
                with system.open_input_stream(file.path) as stream:
                    text = stream.read()
                try:
                    named |= {entry["run"] for entry in json.loads(text).values()}
                except (ValueError, TypeError, KeyError, AttributeError):
                    log.exception(
                        "a ledger cannot be read: no tables are deleted", extra={"part": name}
                    )
                    is_known = False
    for run in _below(system, f"{root}/runs") if is_known else ():
        if run.base_name not in named and _newest(system, run) < now - UNNAMED_KEPT:
            delete_folder(system, run.path)
            log.info("deleted tables nobody names", extra={"run": run.base_name})
            deleted += 1
    return deleted


def delete_old_reports(now: datetime) -> int:
    """Delete reports older than their days; how many."""
    options = settings.REPORTS
    hourly = now - HOURLY_KEPT
    others = now - timedelta(days=options["KEPT_DAYS"])
    return (
        delete_in_batches(Report.objects.filter(kind=Kind.HOURLY, start__lt=hourly))
        + delete_in_batches(Report.objects.filter(start__lt=others))
        + delete_in_batches(ReportRun.objects.filter(state__in=ReportRun.OVER, ended_at__lt=hourly))
    )


def _newest(system: fs.FileSystem, folder: fs.FileInfo) -> datetime:
    """When the folder was changed; on an object store, which has none, its newest object."""
    oldest = datetime.min.replace(tzinfo=UTC)
    if folder.mtime is not None:
        return folder.mtime
    selector = fs.FileSelector(folder.path, recursive=True, allow_not_found=True)
    return max((each.mtime or oldest for each in system.get_file_info(selector)), default=oldest)


def _below(system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    found: list[fs.FileInfo] = system.get_file_info(selector)
    return found

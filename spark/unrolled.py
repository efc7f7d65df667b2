"""Finds recent hours of the record that no report covers, or not completely.

It looks only at the hours' folders, and reads no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings

from spark.models import Report, ReportRun

if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Hours with rows that have no report, or an older one; bytes of their files.

    `fault` says why the record could not be looked at; `waiting` whether a run for them waits or
    is under way.
    """

    hours: list[datetime] = field(default_factory=list)
    bytes: int = 0
    fault: str = ""
    waiting: bool = False


def hours_not_rolled_up(start: datetime, end: datetime) -> Unrolled:
    """Hours in [start, end) whose rows are newer than their report."""
    # Arrow is loaded by who asks, not by every program
    from msgnode.traffic.files import files_below, folder_of
    from msgnode.traffic.recorder import raw_url
    from spark.jobs.places import place

    made = dict(
        Report.objects.filter(kind="hourly", start__gte=start, start__lt=end).values_list(
            "start", "made_at"
        )
    )
    found: list[datetime] = []
    size = 0
    try:
        system, root = place(raw_url(settings.RECORD["URL"]))
        for number in range(int((end - start) / timedelta(hours=1))):
            hour = start + timedelta(hours=number)
            files = [
                file
                for file in files_below(system, f"{root}/{folder_of(int(hour.timestamp()))}")
                if file.base_name.endswith(".parquet") and not file.base_name.startswith("_")
            ]
            if files and (hour not in made or _newest(files) > made[hour]):
                found.append(hour)
                size += sum(file.size for file in files)
    except (OSError, ValueError) as error:
        return Unrolled(fault=str(error)[:200])
    under_way = ReportRun.objects.filter(
        kind="hourly", state__in=(ReportRun.State.QUEUED, ReportRun.State.RUNNING)
    )
    return Unrolled(found, size, waiting=under_way.exists())


def _newest(files: list[fs.FileInfo]) -> datetime:
    newest: datetime = max(file.mtime for file in files)
    return newest

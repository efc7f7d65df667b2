"""Deletes old raw rows. Each deletion is logged.

These are hours beyond their days, then the oldest while the record is near its limit, and what
crashed writers left behind.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from pyarrow import fs

from msgnode.traffic.files import files_below
from msgnode.traffic.recorder import raw_url
from spark.jobs.places import delete_folder, is_object_store, place

log = logging.getLogger(__name__)

NEAR_CAP = 0.9
KEPT_ANYHOW = timedelta(hours=3)
"""Hours younger than this are never deleted for space: they may not be aggregated yet."""
LEFT_BEHIND = timedelta(days=1)


def delete_old(
    url: str,
    now: datetime,
    *,
    days: int,
    max_bytes: int,
    told: Callable[[datetime], None] = lambda hour: None,
) -> int:
    """Delete whole hours of the record at `url`; return their number.

    `told` is called with each hour before it is deleted.
    """
    system, root = place(raw_url(url))
    sizes: dict[datetime, int] = defaultdict(int)
    for file in files_below(system, root):
        if file.base_name.endswith(".tmp") and file.mtime < now - LEFT_BEHIND:
            with suppress(FileNotFoundError):  # another worker does the same
                system.delete_file(file.path)
            log.info("deleted a file a broken writer left", extra={"file": file.base_name})
        elif hour := hour_of(file.path.removeprefix(root)):
            sizes[hour] += file.size
    oldest = now - timedelta(days=days)
    used, deleted = sum(sizes.values()), 0
    for hour in sorted(sizes):
        too_old = hour < oldest.replace(minute=0, second=0, microsecond=0)
        for_room = used > NEAR_CAP * max_bytes and hour < now - KEPT_ANYHOW
        if not too_old and not for_room:
            break
        told(hour)
        _delete(
            system, root, hour, "its days are over" if too_old else "the record is near its cap"
        )
        used -= sizes[hour]
        deleted += 1
    return deleted


def hour_of(path: str) -> datetime | None:
    """The hour of a file by its folders, None if it is elsewhere."""
    parts = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    try:
        return datetime.strptime(f"{parts['date']} {parts['hour']}", "%Y-%m-%d %H").replace(
            tzinfo=UTC
        )
    except (KeyError, ValueError):
        return None


def _delete(system: fs.FileSystem, root: str, hour: datetime, why: str) -> None:
    day = f"{root}/date={hour:%Y-%m-%d}"
    delete_folder(system, f"{day}/hour={hour:%H}")
    others = fs.FileSelector(day, allow_not_found=True)
    if not is_object_store(system) and not system.get_file_info(others):
        with suppress(FileNotFoundError):
            system.delete_dir(day)
    log.info("deleted an hour of the traffic record", extra={"hour": hour.isoformat(), "why": why})

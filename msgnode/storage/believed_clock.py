"""The time by which rows and files are deleted: a clock that has jumped is not trusted at once.

    believed_now(now) ─► now, while this machine's clock advances normally between two checks
                         the last trusted time, if the clock is days ahead of it

Deletion by age checks the clock every hour. If more than LONGEST_PAUSE has passed since the last
check, either nothing ran here for that long, or the clock is wrong. Then nothing more is deleted by
age and an alarm is raised, until the clock is right again or has advanced steadily for STEADY. A
clock that is set back deletes less, so it raises no alarm; it is trusted again after STEADY.

Each machine stores its last checks in DATA_DIR/clock.json.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings

from . import alarms

log = logging.getLogger(__name__)

ALARM = "clock-jumped"
LONGEST_PAUSE = timedelta(days=3)
STEADY = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Clock:
    """The stored result of earlier checks; all times by this machine's clock.

    believed    the last check at which the clock was trusted
    looked_at   the last check
    since       the check since which it has advanced steadily without being trusted, else None
    """

    believed: datetime
    looked_at: datetime
    since: datetime | None = None


def looked(before: Clock, now: datetime) -> Clock:
    """Return what to store after a check at which the clock says `now`."""
    if abs(now - before.believed) <= LONGEST_PAUSE:
        return Clock(now, now)
    since = before.since
    if since is None or not timedelta() <= now - before.looked_at <= LONGEST_PAUSE:
        since = now
    if now - since >= STEADY:
        return Clock(now, now)
    return Clock(before.believed, now, since)


def believed_now(now: datetime, newest: datetime | None = None) -> datetime:
    """Return the time by which age is measured; raise or clear the alarm. Blocks.

    Args:
        now: what the clock says.
        newest: the time of the newest data, which is trusted if no check is stored.

    Returns:
        `now`, or an earlier moment.

    Raises:
        OSError: the stored checks cannot be read.
    """
    path = settings.DATA_DIR / "clock.json"
    before = _read(path) or Clock(newest or now, now)
    after = looked(before, now)
    _write(path, after)
    host = socket.gethostname()
    if after.since is None:
        if before.since is not None:
            alarms.clear_alarm(ALARM, host)
    elif after.believed < now:
        log.warning("the clock has jumped", extra={"from": str(before.believed), "to": str(now)})
        alarms.raise_alarm(
            ALARM,
            host,
            f"The clock of {host} says {now:%Y-%m-%d %H:%M} UTC; when it was looked at before, it "
            f"said {after.believed:%Y-%m-%d %H:%M}. Either nothing ran here in between, or the "
            "clock is wrong: set it right. Nothing younger is deleted by age before "
            f"{after.since + STEADY:%Y-%m-%d %H:%M}; if the clock is right, delete {path} to have "
            "it believed at once.",
        )
    return min(now, after.believed)


def _read(path: Path) -> Clock | None:
    try:
        said = json.loads(path.read_text())
        since = said["since"]
        return Clock(
            datetime.fromisoformat(said["believed"]),
            datetime.fromisoformat(said["looked_at"]),
            since and datetime.fromisoformat(since),
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        log.exception("what was remembered of the clock cannot be read")
        return None


def _write(path: Path, clock: Clock) -> None:
    """Two that look at the same moment remember the same, whoever is last."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(asdict(clock), default=datetime.isoformat))
        temporary.replace(path)
    except OSError:  # such as a full disk: what is remembered stays, and is older the next time
        log.exception("the clock cannot be remembered")

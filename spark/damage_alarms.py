"""Raises alarms about raw files that cannot be read or compacted, from the reports of the runs.

The reports are the source, not the code that sets a file aside: so a run that is killed in between
makes no difference. The same alarm is not raised twice, so an operator may clear it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgnode.models import Alarm
from msgnode.storage import alarms

ALARM = "record-damaged"
NOT_COMPACTED = "record-not-compacted"
_TEXT = 500
_FILES_NAMED = 5
_FILES_IN_A_RUN = 20


def raise_damaged(files: Iterable[Mapping[str, str]]) -> None:
    """An alarm for each hour of these files (hour, file, fault). Blocks."""
    hours: dict[str, dict[str, str]] = defaultdict(dict)
    for each in files:
        hours[f"{_moment(each):%Y-%m-%d %H:%M}"][each["file"]] = each["fault"]
    _raise({hour: _text(hour, faults) for hour, faults in hours.items()})


def raise_ledgers(names: Iterable[str]) -> None:
    """An alarm for each file of the roll-up's ledgers that could not be read. Blocks."""
    _raise(
        {
            name: f"The file {name} of the roll-up could not be read and is called "
            f"{name}.damaged now. Its hours are rolled up again from their rows; those whose rows "
            "are kept no longer are missing in reports made from now on."
            for name in names
        }
    )


def tell_compaction(fault: str) -> None:
    """Raise the alarm that hours are not compacted, or clear it. Blocks."""
    if not fault:
        alarms.clear_alarm(NOT_COMPACTED, "")
        return
    text = f"The many small files of an hour could not be made one, and no report is wrong: {fault}"
    alarms.raise_alarm(NOT_COMPACTED, "", text[:_TEXT])


def _raise(texts: Mapping[str, str]) -> None:
    told = set(Alarm.objects.filter(kind=ALARM, subject__in=texts).values_list("subject", "text"))
    alarms.raise_alarms(
        alarms.Raised(ALARM, about, text)
        for about, text in texts.items()
        if (about, text) not in told
    )


def warning(files: list[dict[str, str]]) -> str:
    """What a run says of these files; empty if there are none."""
    lines = [
        f"{_moment(each):%Y-%m-%d %H:%M} {each['file']}: {each['fault']}"
        for each in files[:_FILES_IN_A_RUN]
    ]
    if len(files) > _FILES_IN_A_RUN:
        lines.append(f"and {len(files) - _FILES_IN_A_RUN} more")
    return "\n".join(lines)


def _text(hour: str, faults: Mapping[str, str]) -> str:
    names = sorted(faults)
    more = f" and {len(names) - _FILES_NAMED} more" if len(names) > _FILES_NAMED else ""
    return (
        f"The traffic of {hour} UTC is incomplete: {len(names)} raw files are missing or damaged: "
        f"{', '.join(names[:_FILES_NAMED])}{more}; {faults[names[0]]}"
    )[:_TEXT]


def _moment(file: Mapping[str, str]) -> datetime:
    return datetime.fromisoformat(file["hour"]).astimezone(UTC)

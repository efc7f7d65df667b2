"""Updates the roll-up.

It finds the hours whose raw files are not in the roll-up, aggregates them in one pass, and enters
them in the ledger.

If that fails, each file is read by itself. Damaged or missing ones are left out, the hour's entry
names them, and then they are set aside: if a run is killed in between, the next one finds them
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark.jobs import compaction, damage, hourly, record, schema, tables
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.parallel import run_parallel
from spark.jobs.storage import File, Storage

log = logging.getLogger(__name__)

HOURS_AT_ONCE = 24 * 7
ATTEMPTS = 3
"""Of a roll-up, each without the files that the one before found damaged."""
_LONGEST_FAULT = 300
LATE = "it came after the other rows of its hour were deleted"
Progress = Callable[[float, str], None]


def stale_hours(
    raw: Storage, ledger: Ledger, start: datetime, end: datetime, *, again: bool = False
) -> dict[datetime, list[File]]:
    """Hours with raw files that the roll-up does not stand for (all of them, if `again`).

    And those it does not know, of which every file is missing on a restored node.
    """
    found = {}
    for hour, listed in record.recorded_hours(raw, start, end).items():
        files = record.files_of(raw, hour, listed)
        entry = ledger.entry(hour)
        is_stale = again or entry is None or entry.inputs != record.fingerprint(files)
        if (files and is_stale) or (entry is None and record.missing_of(raw, hour, listed)):
            found[hour] = files
    return found


def roll_up(
    spark: SparkSession,
    raw: Storage,
    ledger: Ledger,
    hours: dict[datetime, list[File]],
    run: str,
    progress: Progress,
) -> int:
    """Roll these hours up and enter them. Returns the rows read."""
    rows = 0
    todo = sorted(hours)
    for first in range(0, len(todo), HOURS_AT_ONCE):
        part = todo[first : first + HOURS_AT_ONCE]
        progress(first / len(todo), f"rolling up {len(todo)} hours, {first} done")
        rows += _roll_up_part(
            spark, raw, ledger, {hour: hours[hour] for hour in part}, f"{run}-{first}"
        )
    return rows


def _roll_up_part(
    spark: SparkSession, raw: Storage, ledger: Ledger, hours: dict[datetime, list[File]], run: str
) -> int:
    faults: damage.Faults = {
        hour: dict.fromkeys(missing, damage.MISSING)
        for hour in hours
        if (missing := record.missing_of(raw, hour))
    }
    with tables.thrown_away_if_it_fails(ledger.storage, ledger.folder_of(run)):
        for attempt in range(ATTEMPTS):
            try:
                counted = _write_tables(spark, raw, ledger, hours, run)
                break
            except Exception as failure:
                found = damage.faults_in(spark, raw, hours)
                if not found or attempt == ATTEMPTS - 1:
                    raise
                log.warning("files of the record cannot be read", exc_info=failure)
                hours = {
                    hour: _without(
                        raw, hour, files, found.get(hour, {}), faults.setdefault(hour, {})
                    )
                    for hour, files in hours.items()
                }
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entries = {
        hour: entry_of(
            ledger.entry(hour), files, counted.get(hour, 0), faults.get(hour, {}), run, now
        )
        for hour, files in hours.items()
    }
    ledger.enter(entries)
    for hour, damaged in faults.items():
        damage.set_aside(raw, hour, damaged)
    return sum(counted.values())


def entry_of(
    before: Entry | None, files: list[File], rows: int, faults: dict[str, str], run: str, now: str
) -> Entry:
    """What the ledger says of an hour of which these files were counted.

    Rows are only added to an hour, but for damaged files that were set aside: fewer than before are
    the late ones of an hour whose others retention has deleted, and do not take the place of those.
    Nor do fewer than before on a restored node: then the roll-up has been restored, too, and has
    counted the files that are missing.

    Args:
        before: what it said until now.
        files: those that were counted.
        rows: how many rows they have.
        faults: files that are damaged or gone, and why.
        run: the run that counted.
        now: when, ISO.
    """
    known = {} if before is None else before.lost
    lost = {name: why for name, why in known.items() if why != damage.MISSING} | faults
    for file in files:
        lost.pop(file.name, None)
    inputs = record.fingerprint(files)
    is_missing = damage.MISSING in lost.values()
    damaged = {n: why for n, why in lost.items() if why not in (damage.GONE, damage.MISSING)}
    has_damage = any(why != LATE for why in damaged.values())
    if before is None or (files and (rows >= before.rows or has_damage)):
        return Entry(run, inputs, rows, now, lost)
    if not files:  # nothing is left to count: what was counted before stands
        return replace(before, lost=damaged)
    if is_missing:
        return replace(before, inputs=inputs)
    return replace(before, inputs=inputs, lost=damaged | {file.name: LATE for file in files})


def _without(
    raw: Storage,
    hour: datetime,
    files: list[File],
    found: dict[str, str],
    faults: dict[str, str],
) -> list[File]:
    """The files of an hour without those that are damaged, which are added to `faults`.

    Where some are gone and a compacted one is new, another run has put their rows there.
    """
    if damage.GONE in found.values():
        there, known = record.files_of(raw, hour), {file.name for file in files}
        if any(compaction.is_compacted(file) and file.name not in known for file in there):
            found = {name: why for name, why in found.items() if why != damage.GONE}
            files = there
    faults.update(found)
    return [file for file in files if file.name not in faults]


def _write_tables(
    spark: SparkSession, raw: Storage, ledger: Ledger, hours: dict[datetime, list[File]], run: str
) -> dict[datetime, int]:
    """The tables of the run. Returns how many rows each hour has."""
    if not any(hours.values()):
        return {}
    made = hourly.from_pieces(record.pieces(spark, hours), raw.root, run)
    rolled = ledger.storage
    run_parallel(
        [
            partial(tables.write, table, rolled, ledger.tables_of(run, name))
            for name, table in made.items()
        ]
    )
    parties = tables.read(spark, rolled, schema.PARTIES, [ledger.tables_of(run, "parties")])
    distinct = hourly.distinct(parties).coalesce(1)
    tables.write(distinct, rolled, ledger.tables_of(run, "distinct"))
    traffic = tables.read(spark, rolled, schema.TRAFFIC, [ledger.tables_of(run, "traffic")])
    sessions = tables.read(spark, rolled, schema.SESSIONS, [ledger.tables_of(run, "sessions")])
    rows = traffic.select("hour", f.col("messages").alias("rows")).union(
        sessions.select("hour", f.col("sessions").alias("rows"))
    )
    return {
        datetime.fromtimestamp(row["hour"], UTC): row["rows"]
        for row in rows.groupBy(f.unix_timestamp("hour").alias("hour"))
        .agg(f.sum("rows").alias("rows"))
        .collect()
    }


class Compacted(NamedTuple):
    """How many hours were compacted, and why no more were, if that failed."""

    hours: int
    fault: str = ""


def compact(
    spark: SparkSession, raw: Storage, ledger: Ledger, start: datetime, end: datetime, run: str
) -> Compacted:
    """Compact hours that are over and rolled up, and tell the ledger that their rows are the same.

    An hour to which rows came meanwhile stays stale, and so does one of which a file turns out to
    be damaged in columns that the roll-up does not read. What fails, as on a full disk, ends the
    compaction and not the run: its reports are made.
    """
    done = 0
    there = record.recorded_hours(raw, start, end)
    for hour, entry in ledger.entries(start, end).items():
        try:
            done += _settle_and_compact(spark, raw, ledger, hour, entry, there.get(hour, []), run)
        except Exception as failure:
            log.exception("hours of the record are not compacted", extra={"hour": str(hour)})
            return Compacted(done, f"{type(failure).__name__}: {failure}"[:_LONGEST_FAULT])
    return Compacted(done)


def _settle_and_compact(
    spark: SparkSession,
    raw: Storage,
    ledger: Ledger,
    hour: datetime,
    entry: Entry,
    listed: list[File],
    run: str,
) -> bool:
    files = record.files_of(raw, hour, listed)
    if compaction.is_unsettled(listed, files):
        compaction.settle(raw, hour)
        files = record.files_of(raw, hour)
    if len(files) < compaction.FILES_WORTH_IT or entry.rows > compaction.ROWS_PER_FILE:
        return False
    return _compact_hour(spark, raw, ledger, hour, entry, run)


def _compact_hour(
    spark: SparkSession, raw: Storage, ledger: Ledger, hour: datetime, entry: Entry, run: str
) -> bool:
    """Twice, if need be: another run may be at the same hour."""
    for is_last in (False, True):
        files = record.files_of(raw, hour)
        if not files or entry.inputs != record.fingerprint(files):
            return False
        try:
            compacted = compaction.compact(spark, raw, hour, files, run)
        except Exception as failure:
            faults: dict[str, str] = {}
            found = damage.faults_in(spark, raw, {hour: files}).get(hour, {})
            _without(raw, hour, files, found, faults)
            if faults:
                log.warning("files of the record cannot be compacted", exc_info=failure)
                ledger.change(hour, entry.inputs, lost=entry.lost | faults)
                damage.set_aside(raw, hour, faults)
                return False
            if is_last and not found:
                raise
            continue
        settled = record.files_of(raw, hour) if compacted else []
        if len(settled) == 1:
            ledger.change(hour, entry.inputs, inputs=record.fingerprint(settled))
        return compacted
    return False

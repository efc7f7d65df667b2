"""Bring the roll-up up to date: find the hours whose raw files it does not stand for, roll them up
in one pass, enter them in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark.jobs import compaction, hourly, record, schema
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.parallel import run_parallel
from spark.jobs.storage import File, Storage

HOURS_AT_ONCE = 24 * 7
Progress = Callable[[float, str], None]


def stale_hours(
    raw: Storage, ledger: Ledger, start: datetime, end: datetime, *, again: bool = False
) -> dict[datetime, list[File]]:
    """Hours with raw files that the roll-up does not stand for (all of them, if `again`)."""
    found = {}
    for hour, listed in record.recorded_hours(raw, start, end).items():
        files = record.files_of(raw, hour, listed)
        entry = ledger.entry(hour)
        if files and (again or entry is None or entry.inputs != record.fingerprint(files)):
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
    tables = hourly.from_pieces(record.pieces(spark, hours), raw.root, run)
    run_parallel(
        [
            partial(table.write.mode("overwrite").parquet, ledger.tables_of(run, name))
            for name, table in tables.items()
        ]
    )
    parties = spark.read.schema(schema.PARTIES).parquet(ledger.tables_of(run, "parties"))
    hourly.distinct(parties).coalesce(1).write.mode("overwrite").parquet(
        ledger.tables_of(run, "distinct")
    )
    traffic = spark.read.schema(schema.TRAFFIC).parquet(ledger.tables_of(run, "traffic"))
    counted = {
        datetime.fromtimestamp(row["hour"], UTC): row["messages"]
        for row in traffic.groupBy(f.unix_timestamp("hour").alias("hour"))
        .agg(f.sum("messages").alias("messages"))
        .collect()
    }
    now = datetime.now(UTC).isoformat(timespec="seconds")
    ledger.enter(
        {
            hour: Entry(run, record.fingerprint(files), counted.get(hour, 0), now)
            for hour, files in hours.items()
        }
    )
    return sum(counted.values())


def compact(
    spark: SparkSession, raw: Storage, ledger: Ledger, start: datetime, end: datetime, run: str
) -> int:
    """Compact hours that are over and rolled up, and tell the ledger that their rows are the same.
    An hour to which rows came meanwhile stays stale."""
    done = 0
    there = record.recorded_hours(raw, start, end)
    for hour, entry in ledger.entries(start, end).items():
        listed = there.get(hour, [])
        if compaction.is_unsettled(listed):
            compaction.settle(raw, hour)
            listed = raw.files(raw.at(record.folder_of(hour)))
        files = record.files_of(raw, hour, listed)
        if not files or entry.inputs != record.fingerprint(files):
            continue
        if compaction.compact(spark, raw, hour, files, run):
            settled = record.files_of(raw, hour)
            if len(settled) == 1:
                ledger.enter({hour: replace(entry, inputs=record.fingerprint(settled))})
            done += 1
    return done

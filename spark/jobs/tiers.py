"""The coarser tiers: hours added up to days, and days to months, for reports of a day and longer.

A party that is active every hour has 24 rows a day among the hours and one here. A day is made of
rolled-up hours, never of raw rows, a month of days, and made again when a part of it was. Its rows
have its start as their `hour`; rows of parties have the party's last hour, and some tables keep the
hour (`schema.DAYS` says which), so that a report needs to read only days, or months.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.jobs import ledger, schema, tables
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.ledger_tiers import DAYS, MONTHS, Tier
from spark.jobs.parallel import run_parallel

Entries = Mapping[datetime, Entry]


@dataclass(frozen=True, slots=True)
class Coarser:
    """How a tier is made of the finer one.

    at_once   how many are made in one pass
    made_of   tables that are made of another one of the finer tier
    told_by   tables that tell by something shorter than the tier's own period
    """

    at_once: int
    made_of: Mapping[str, str] = field(default_factory=dict)
    told_by: Mapping[str, str] = field(default_factory=dict)


_HOW: dict[Tier, Coarser] = {
    DAYS: Coarser(
        31,
        {"hours": "traffic", "latency_hours": "latency"},
        {"hours": "hour", "latency_hours": "hour", "sessions": "hour"},
    ),
    MONTHS: Coarser(3, {}, {"hours": "hour", "latency_hours": "day", "sessions": "day"}),
}
_FORM = "5"
"""Of the tables of a day: one of another form is made again."""
_COUNTS = {
    "messages": f.sum, "bytes": f.sum, "deliveries": f.sum, "asserted": f.sum,
    "highest_us": f.max, "sketch": f.hll_union_agg, "sessions": f.sum, "resumptions": f.sum,
    "longest_s": f.max,
}  # fmt: skip


def stale(finer: Ledger, coarser: Ledger, start: datetime, end: datetime) -> list[datetime]:
    """Days (or months) from that of `start` to before `end` that are not made of what is there."""
    found = []
    tier = coarser.tier
    at = tier.floor(start)
    while at < end:
        there = finer.entries(at, tier.after(at))
        entry = coarser.entry(at)
        if there and (entry is None or entry.inputs != _fingerprint(finer.tier, there)):
            found.append(at)
        at = tier.after(at)
    return found


def rows_of(finer: Ledger, coarser: Ledger, todo: list[datetime]) -> int:
    """Rows of the record in these days (or months)."""
    there = (finer.entries(at, coarser.tier.after(at)) for at in todo)
    return sum(entry.rows for entries in there for entry in entries.values())


def roll_up(
    spark: SparkSession, finer: Ledger, coarser: Ledger, todo: list[datetime], run: str
) -> None:
    """Make these days of their hours (or months of their days) and enter them."""
    tier = coarser.tier
    how = _HOW[tier]
    for first in range(0, len(todo), how.at_once):
        name = f"{run}-{tier.folder}-{first}"
        part = todo[first : first + how.at_once]
        there = {at: finer.entries(at, tier.after(at)) for at in part}
        every = {start: entry for entries in there.values() for start, entry in entries.items()}

        def write(table: str, name: str, every: Entries) -> None:
            rows = ledger.read(spark, finer, how.made_of.get(table, table), every)
            made = _added_up(tier, table, rows, name)
            tables.write(made, coarser.storage, coarser.tables_of(name, table))

        with tables.thrown_away_if_it_fails(coarser.storage, coarser.folder_of(name)):
            run_parallel([partial(write, table, name, every) for table in schema.DAYS])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        coarser.enter(
            {
                at: Entry(
                    name,
                    _fingerprint(finer.tier, entries),
                    sum(entry.rows for entry in entries.values()),
                    now,
                )
                for at, entries in there.items()
            }
        )


def _added_up(tier: Tier, table: str, rows: DataFrame, run: str) -> DataFrame:
    """Rows of a finer tier by day or month, or by what the table is told by."""
    how = _HOW[tier]
    names = [field.name for field in schema.DAYS[table].fields[2:]]
    keys = [name for name in names if name not in _COUNTS]
    at = f.date_trunc(how.told_by.get(table, tier.unit), "hour")
    last = f.max("hour" if table == "parties" else "at")
    if how.made_of.get(table) == "latency":
        rows = rows.where(f.col("component") == "")
    return (
        rows.withColumn("at", at)
        .groupBy("at", *keys)
        .agg(last.alias("hour"), *(_COUNTS[n](n).alias(n) for n in names if n in _COUNTS))
        .select(f.lit(run).alias("run"), "hour", *names)
    )


def _fingerprint(finer: Tier, entries: Entries) -> str:
    """Changes when an hour (or a day) was rolled up anew."""
    lines = (f"{start:{finer.key}} {entry.run}" for start, entry in sorted(entries.items()))
    return hashlib.sha256("\n".join([_FORM, *lines]).encode()).hexdigest()[:16]

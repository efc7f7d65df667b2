"""The daily tier: the hours of a day added up, for reports of a day and longer.

A party that talks every hour has 24 rows a day among the hours and one here. A day is made of hours
that are rolled up, never of rows, and made again when one of its hours was. Its rows have the start
of the day as their `hour`; those of parties the last hour they were there, and two tables tell
the traffic and the latency of each hour, so that a report looks at days alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.jobs import ledger, schema
from spark.jobs.ledger import DAYS, Entry, Ledger
from spark.jobs.parallel import run_parallel

Hours = Mapping[datetime, Entry]
DAYS_AT_ONCE = 31
_FORM = "3"
"""Of the tables of a day: one of another form is made again."""
_MADE_OF = {"hours": "traffic", "latency_hours": "latency"}
_COUNTS = {
    "messages": f.sum, "bytes": f.sum, "deliveries": f.sum, "asserted": f.sum,
    "highest_us": f.max, "sketch": f.hll_union_agg,
}  # fmt: skip


def stale_days(hours: Ledger, days: Ledger, start: datetime, end: datetime) -> list[datetime]:
    """Days from that of `start` to before `end` whose hours are not those they were made of."""
    found = []
    day = DAYS.floor(start)
    while day < end:
        there = hours.entries(day, day + DAYS.step)
        entry = days.entry(day)
        if there and (entry is None or entry.inputs != _fingerprint(there)):
            found.append(day)
        day += DAYS.step
    return found


def rows_of(hours: Ledger, days: list[datetime]) -> int:
    """Rows of the record in these days."""
    return sum(entry.rows for day in days for entry in hours.entries(day, day + DAYS.step).values())


def roll_up(
    spark: SparkSession, hours: Ledger, days: Ledger, todo: list[datetime], run: str
) -> None:
    """Make these days of their hours and enter them."""
    for first in range(0, len(todo), DAYS_AT_ONCE):
        part = todo[first : first + DAYS_AT_ONCE]
        name = f"{run}-days-{first}"
        there = {day: hours.entries(day, day + DAYS.step) for day in part}
        every = {hour: entry for of_day in there.values() for hour, entry in of_day.items()}
        run_parallel(
            [
                partial(
                    _added_up(
                        table, ledger.read(spark, hours, _MADE_OF.get(table, table), every), name
                    )
                    .write.mode("overwrite")
                    .parquet,
                    days.tables_of(name, table),
                )
                for table in schema.DAYS
            ]
        )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        days.enter(
            {
                day: Entry(name, _fingerprint(of_day), sum(e.rows for e in of_day.values()), now)
                for day, of_day in there.items()
            }
        )


def _added_up(table: str, rows: DataFrame, run: str) -> DataFrame:
    """Hours of one of the tables by day, or what is told by hour."""
    names = [field.name for field in schema.DAYS[table].fields[2:]]
    keys = [name for name in names if name not in _COUNTS]
    at = f.col("hour") if table in _MADE_OF else f.date_trunc("day", "hour")
    last = f.max("hour" if table == "parties" else "at")
    if table == "latency_hours":
        rows = rows.where(f.col("component") == "")
    return (
        rows.withColumn("at", at)
        .groupBy("at", *keys)
        .agg(last.alias("hour"), *(_COUNTS[n](n).alias(n) for n in names if n in _COUNTS))
        .select(f.lit(run).alias("run"), "hour", *names)
    )


def _fingerprint(hours: Hours) -> str:
    """Changes when an hour was rolled up anew."""
    text = "\n".join([_FORM, *(f"{hour:%H} {entry.run}" for hour, entry in sorted(hours.items()))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]

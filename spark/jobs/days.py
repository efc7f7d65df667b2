"""The daily tier: the hours of a day added up, for reports of a day and longer.

A party that talks every hour has 24 rows a day among the hours and one here. A day is made of hours
that are rolled up, never of rows, and made again when one of its hours was. Its rows have the start
of the day as their `hour`; those of parties the last hour they were there.
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
from spark.jobs.together import at_once

Hours = Mapping[datetime, Entry]
DAYS_AT_ONCE = 31


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


def roll_up(
    spark: SparkSession, hours: Ledger, days: Ledger, todo: list[datetime], run: str
) -> None:
    """Make these days of their hours and enter them."""
    for first in range(0, len(todo), DAYS_AT_ONCE):
        part = todo[first : first + DAYS_AT_ONCE]
        name = f"{run}-days-{first}"
        there = {day: hours.entries(day, day + DAYS.step) for day in part}
        every = {hour: entry for of_day in there.values() for hour, entry in of_day.items()}
        at_once(
            [
                partial(
                    _added_up(table, ledger.read(spark, hours, table, every), name)
                    .write.mode("overwrite")
                    .parquet,
                    days.tables_of(name, table),
                )
                for table in schema.ROLL_UP
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
    """Hours of one of the tables by day."""
    counts = {"messages": f.sum, "bytes": f.sum, "deliveries": f.sum, "asserted": f.sum,
              "highest_us": f.max, "sketch": f.hll_union_agg}  # fmt: skip
    names = [field.name for field in schema.ROLL_UP[table].fields[2:]]
    keys = [name for name in names if name not in counts]
    day = f.date_trunc("day", "hour")
    last = f.max("hour" if table == "parties" else "day")
    return (
        rows.withColumn("day", day)
        .groupBy("day", *keys)
        .agg(last.alias("hour"), *(counts[n](n).alias(n) for n in names if n in counts))
        .select(f.lit(run).alias("run"), "hour", *names)
    )


def _fingerprint(hours: Hours) -> str:
    """Changes when an hour was rolled up anew."""
    text = "\n".join(f"{hour:%H} {entry.run}" for hour, entry in sorted(hours.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]

"""A record of one year, rolled up hour by hour as the schedule leaves it.

    python -m bench.year_record DIRECTORY

A week of real rows is rolled up by Spark. Each hour of the year is that of its weekday, in files of
its own, with a quarter of the addresses new each week; the counts are multiplied to add up
to MESSAGES. Days and months are then added up by Spark. What is there already is not made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
import pyarrow.parquet as pq

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, sessions
from spark import job_main
from spark.jobs import rolling, schema, tiers
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.ledger_tiers import DAYS, MONTHS
from spark.jobs.storage import Storage

YEAR, END = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)
ROWS_A_DAY = 500_000
MESSAGES = 1_000_000_000
WEIGHT = MESSAGES / ((END - YEAR).days * ROWS_A_DAY)
BY_DAY = (1, 2, 3, 5, 6, 11, 12)
"""Months whose days each have a run of their own: reports look at these days."""
_COUNTS = ("messages", "bytes", "deliveries", "asserted")
_NEW = pa.array(list("0369"))  # last digits of addresses that are new each week
Hour = dict[str, pa.Table]


def week(place: Path) -> Path:
    """The record with a week of real rows, the last of the year."""
    return place / "week"


def make(place: Path, cores: int) -> None:
    if not (week(place) / "raw").exists():
        _fill(week(place))
    spark = job_main.session(
        {"spark.master": f"local[{cores}]", "spark.driver.memory": "3g"},
    )
    raw, book = Storage(f"{week(place)}/raw"), Ledger(Storage(f"{week(place)}/roll-up"))
    stale = rolling.stale_hours(raw, book, END - WEEK, END)
    rolling.roll_up(spark, raw, book, stale, "week", lambda share, step: None)
    rolled = Storage(f"{place}/year/roll-up")
    _multiply(_template(week(place)), rolled)
    by_hour, by_day, by_month = Ledger(rolled), Ledger(rolled, DAYS), Ledger(rolled, MONTHS)
    for first in range(1, 13):
        start = datetime(2025, first, 1, tzinfo=UTC)
        end = MONTHS.after(start)
        days = tiers.stale(by_hour, by_day, start, end)
        each = [[day] for day in days] if first in BY_DAY else [days] if days else []
        for part in each:
            tiers.roll_up(spark, by_hour, by_day, part, f"d{start:%m}{len(part)}-{part[0]:%d}")
        for month in tiers.stale(by_day, by_month, start, end):
            tiers.roll_up(spark, by_day, by_month, [month], f"m{month:%m}")
        sys.stderr.write(f"  {start:%B}\n")
    spark.stop()


def _fill(place: Path) -> None:
    plan = Plan(7 * ROWS_A_DAY, 7, 7, END)
    files = RecordFiles(f"{place}/raw", "week", max_bytes=1 << 40, min_free=0)
    for made in (hours(plan), sessions(plan)):
        for hour, table in made:
            files.write(int(hour.timestamp()), table)


def _template(place: Path) -> dict[int, Hour]:
    """The tables of each hour of the week, by its number from Monday."""
    found: dict[int, Hour] = {}
    runs = place / "roll-up" / "runs"
    for table in schema.ROLL_UP:
        every = dataset.dataset(
            [str(path) for path in runs.glob(f"*/{table}/*.parquet")]
        ).to_table()
        for number in range(168):
            hour = END - WEEK + number * HOUR
            rows = every.filter(pc.equal(pc.cast(every["hour"], _UTC), pa.scalar(hour, _UTC)))
            found.setdefault(_number(hour), {})[table] = rows
    return found


_UTC = pa.timestamp("us", tz="UTC")


def _number(hour: datetime) -> int:
    return hour.weekday() * 24 + hour.hour


def _multiply(template: dict[int, Hour], rolled: Storage) -> None:
    root = Path(rolled.root)
    day = YEAR
    while day < END:
        entries: dict[str, Any] = {}
        ledger = root / "ledger" / f"{day:%Y-%m-%d}.json"
        for hour in _hours_of(day) if not ledger.exists() else ():
            run = f"h{hour:%m%d%H}"
            tables = template[_number(hour)]
            for name, rows in tables.items():
                folder = root / "runs" / run / name
                folder.mkdir(parents=True, exist_ok=True)
                made = _moved(rows, hour, run, (day - YEAR) // WEEK)
                pq.write_table(made, folder / "part-0.parquet", compression="zstd")
            rows = sum(tables["traffic"]["messages"].to_pylist())
            entry = Entry(run, f"of {run}", round(rows * WEIGHT), hour.isoformat())
            entries[f"{hour:%H}"] = asdict(entry)
        if entries:
            ledger.parent.mkdir(parents=True, exist_ok=True)
            ledger.write_text(json.dumps(entries))
        day += timedelta(days=1)


def _hours_of(day: datetime) -> Iterator[datetime]:
    return (day + number * HOUR for number in range(24))


def _moved(rows: pa.Table, hour: datetime, run: str, number: int) -> pa.Table:
    """The rows as those of another hour, in the week of this number."""
    same = {"run": pa.scalar(run), "hour": pa.scalar(hour, _UTC)}
    for name, value in same.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.repeat(value, len(rows)))
    for name in set(_COUNTS) & set(rows.column_names):
        at = rows.column_names.index(name)
        many = pc.cast(pc.round(pc.multiply(rows[name], WEIGHT)), pa.int64())
        rows = rows.set_column(at, name, many)
    if "address" in rows.column_names:
        texts = pc.cast(rows["address"], pa.string())
        digits = pc.utf8_slice_codeunits(texts, -1)
        is_new = pc.is_in(digits, value_set=_NEW)
        named = pc.binary_join_element_wise(texts, f"w{number}", "-")
        at = rows.column_names.index("address")
        rows = rows.set_column(at, "address", pc.if_else(is_new, named, texts))
    return rows


if __name__ == "__main__":
    import os

    from spark import java

    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = java.environment(where)["JAVA_HOME"]
    make(where, os.cpu_count() or 1)

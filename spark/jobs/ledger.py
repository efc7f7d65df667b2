"""The ledger of the roll-up: which run's rows count for an hour, and what they were made of.

    <roll-up>/ledger/2026-11-21.json      {"13": {"run": …, "inputs": …, "rows": …, "at": …}, …}
    <roll-up>/runs/<run>/<table>/*.parquet

A run writes its tables to a folder of its own and then enters its hours in the ledger, a whole day
in one rename: a run killed half-way has changed nothing, a re-run replaces, and no hour is ever
counted twice. An hour whose raw files changed since (late rows) is stale and rolled up again; one
whose raw files were removed by retention keeps its entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.jobs import schema
from spark.jobs.storage import Storage


@dataclass(frozen=True, slots=True)
class Entry:
    """run: who counts. inputs: fingerprint of the raw files. rows: how many. at: when, ISO."""

    run: str
    inputs: str
    rows: int
    at: str


class Ledger:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._days: dict[date, dict[int, Entry]] = {}

    def entry(self, hour: datetime) -> Entry | None:
        return self._day(hour.date()).get(hour.hour)

    def entries(self, start: datetime, end: datetime) -> dict[datetime, Entry]:
        """The entries from `start` to before `end`, oldest first."""
        found = {}
        day = start.date()
        while day <= end.date():
            for number, entry in sorted(self._day(day).items()):
                hour = datetime(day.year, day.month, day.day, number, tzinfo=start.tzinfo)
                if start <= hour < end:
                    found[hour] = entry
            day += timedelta(days=1)
        return found

    def enter(self, entries: Mapping[datetime, Entry]) -> None:
        for day in sorted({hour.date() for hour in entries}):
            known = self._day(day) | {h.hour: e for h, e in entries.items() if h.date() == day}
            text = json.dumps({f"{n:02d}": asdict(entry) for n, entry in sorted(known.items())})
            self._storage.replace(self._path(day), text)
            self._days[day] = known

    def tables_of(self, run: str, table: str) -> str:
        return self._storage.at("runs", run, table)

    def _day(self, day: date) -> dict[int, Entry]:
        if day not in self._days:
            path = self._path(day)
            stored = json.loads(self._storage.read(path)) if self._storage.exists(path) else {}
            self._days[day] = {int(number): Entry(**entry) for number, entry in stored.items()}
        return self._days[day]

    def _path(self, day: date) -> str:
        return self._storage.at("ledger", f"{day:%Y-%m-%d}.json")


def read(
    spark: SparkSession, ledger: Ledger, table: str, start: datetime, end: datetime
) -> DataFrame:
    """A table of the roll-up for the hours that count, without the column `run`."""
    entries = ledger.entries(start, end)
    columns = schema.ROLL_UP[table]
    if not entries:
        none = [f.lit(None).cast(field.dataType).alias(field.name) for field in columns]
        return spark.range(0).select(*none).drop("run")
    valid = _valid(spark, entries)
    folders = [ledger.tables_of(run, table) for run in sorted({e.run for e in entries.values()})]
    rows = spark.read.schema(columns).parquet(*folders)
    return rows.join(f.broadcast(valid), on=["run", "hour"], how="left_semi").drop("run")


def _valid(spark: SparkSession, entries: Mapping[datetime, Entry]) -> DataFrame:
    """(run, hour) of the entries, written out as SQL: rows handed over from Python would have Spark
    start Python on its executors."""
    rows = ", ".join(
        f"('{entry.run}', timestamp_seconds({int(hour.timestamp())}))"
        for hour, entry in entries.items()
    )
    return spark.sql(f"select * from values {rows} as valid(run, hour)")  # noqa: S608 (our own ids)

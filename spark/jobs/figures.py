"""The figures of reports: tables computed by Spark, put together as plain values.

A report of a period has: what was asked for and what is there (hours with rows, of how many),
totals, the previous period's totals, tables (lists of rows), and by hour what was expected.
An hour's report has the same without a look at other hours.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.jobs import baseline, ledger, periods, reports, schema
from spark.jobs.ledger import Ledger
from spark.jobs.periods import Kind
from spark.jobs.together import at_once

_BY = {
    "pairs": ("from_domain", "to_domain"),
    "types": ("type",),
    "components": ("component",),
    "schemes": ("from_scheme", "to_scheme"),
}
_HOURLY_ROWS = 50
_COMPARED = ("messages", "bytes", "deliveries", "asserted", *reports.OUTCOMES)


def hourly(
    spark: SparkSession, book: Ledger, start: datetime, end: datetime
) -> list[dict[str, Any]]:
    """One report for each hour from `start` to before `end` that is rolled up."""
    entries = book.entries(start, end)
    frames = {
        name: ledger.read(spark, book, name, entries).withColumn("period", f.col("hour")).cache()
        for name in schema.ROLL_UP
    }
    made = _fetch(_tables(frames, frames, _HOURLY_ROWS))
    spark.catalog.clearCache()
    return [
        _report(
            Kind.HOURLY, hour, hour + timedelta(hours=1), made.get(hour, {}), {hour: entry.rows}
        )
        for hour, entry in entries.items()
    ]


def of_period(
    spark: SparkSession, book: Ledger, days: Ledger, kind: Kind, start: datetime
) -> dict[str, Any]:
    """The report of the day, week or month that begins at `start`: what is told by hour from the
    roll-up of the hours, all else from that of the days."""
    end, previous = periods.after(kind, start), periods.before(kind, start)
    past = min(previous, start - periods.HISTORY)

    def read(of: Ledger, name: str, since: datetime, until: datetime) -> DataFrame:
        found = ledger.read(spark, of, name, of.entries(since, until))
        return found.withColumn("period", f.lit(start))

    hours = {name: read(book, name, start, end).cache() for name in ("traffic", "latency")}
    frames = {name: read(days, name, start, end).cache() for name in schema.ROLL_UP}
    earlier = {name: read(days, name, past, start) for name in ("traffic", "parties")}
    in_previous = f.col("hour") >= f.lit(previous)
    tables = _tables(frames, hours, reports.LONGEST)
    tables["hours"] = baseline.judged(
        _with_failed(reports.by_hour(hours["traffic"])),
        _with_failed(reports.by_hour(read(book, "traffic", past, start))),
    )
    tables["previous"] = reports.totals(earlier["traffic"].where(in_previous))
    tables["new_runtimes"] = reports.appeared(frames["parties"], earlier["parties"], schema.RUNTIME)
    tables["silent_runtimes"] = reports.fell_silent(
        frames["parties"], earlier["parties"].where(in_previous), schema.RUNTIME
    )
    made = _fetch(tables).get(start, {})
    spark.catalog.clearCache()
    there = {hour: entry.rows for hour, entry in book.entries(start, end).items()}
    report = _report(kind, start, end, made, there)
    report["looked_back_hours"] = len(book.entries(past, start))
    report["previous"] = _first(made, "previous")
    report["previous_hours"] = len(book.entries(previous, start))
    report["change"] = _change(report["totals"], report["previous"])
    report["anomalies"] = [
        row for row in report["tables"]["hours"] if row["messages_odd"] or row["failed_odd"]
    ]
    return report


def _tables(
    frames: dict[str, DataFrame], hours: dict[str, DataFrame], longest: int
) -> dict[str, DataFrame]:
    traffic, parties, buckets = frames["traffic"], frames["parties"], frames["latency"]
    relayed = f.col("component") == ""
    return {
        "totals": reports.totals(traffic),
        "hours": _with_failed(reports.by_hour(hours["traffic"])),
        **{name: reports.by_keys(traffic, keys, longest) for name, keys in _BY.items()},
        "causes": reports.causes(traffic, longest),
        "talkers": reports.top_parties(parties, schema.TALKER, min(longest, 100)),
        "listeners": reports.top_parties(parties, schema.LISTENER, min(longest, 100)),
        "distinct": reports.distinct(frames["distinct"]),
        "latency": reports.latency(buckets.where(relayed)),
        "latency_types": reports.latency(buckets, ("type", "component")),
        "latency_hours": reports.latency(hours["latency"].where(relayed), ("hour",)),
    }


def _with_failed(hours: DataFrame) -> DataFrame:
    return hours.withColumn("failed", sum((f.col(name) for name in reports.FAILED), f.lit(0)))


Made = dict[str, list[dict[str, Any]]]
OF = "of "
"""In front of a table's name: how many rows there were to choose the largest from."""


def _fetch(tables: dict[str, DataFrame]) -> dict[datetime, Made]:
    """period → table → rows in their order. A job for each table: one of all of them takes Spark
    longer to plan than to do."""
    found: dict[datetime, Made] = {}
    fetched = at_once([reports.plain(table).collect for table in tables.values()])
    for name, table in zip(tables, fetched, strict=True):
        rows = [row.asDict() for row in table]
        for row in sorted(rows, key=lambda row: (row["period"], row.get("rank", 0))):
            period = datetime.fromisoformat(row.pop("period"))
            row.pop("rank", None)
            of_period = found.setdefault(period, {})
            if "of" in row:
                of_period[OF + name] = [{"rows": row.pop("of")}]
            of_period.setdefault(name, []).append(row)
    return found


def _report(
    kind: Kind,
    start: datetime,
    end: datetime,
    made: Made,
    there: dict[datetime, int],
) -> dict[str, Any]:
    single = ("totals", "previous", "latency", "distinct")
    tables = {
        name: rows for name, rows in made.items() if name not in single and not name.startswith(OF)
    }
    for name in ("hours", "latency_hours"):
        tables.setdefault(name, []).sort(key=lambda row: row["hour"])
    for name in (*_BY, "causes", "talkers", "listeners", "latency_types"):
        tables.setdefault(name, [])
    return {
        "kind": str(kind),
        "start": start.astimezone(UTC).isoformat(),
        "end": end.astimezone(UTC).isoformat(),
        "hours_of_period": round((end - start) / timedelta(hours=1)),
        "hours_recorded": [hour.isoformat() for hour in there],
        "rows": sum(there.values()),
        "totals": _first(made, "totals"),
        "distinct": {row["role"]: row["estimate"] for row in made.get("distinct", [])},
        "latency": _first(made, "latency"),
        "tables": tables,
        "rows_of": {
            name.removeprefix(OF): rows[0]["rows"]
            for name, rows in made.items()
            if name.startswith(OF)
        },
    }


def _first(made: Made, table: str) -> dict[str, Any]:
    return made.get(table, [{}])[0]


def _change(now: dict[str, Any], previous: dict[str, Any]) -> dict[str, float | None]:
    """The change of each count as a share of the previous period's; None if that had nothing."""
    return {
        name: round(now.get(name, 0) / previous[name] - 1, 4) if previous.get(name) else None
        for name in _COMPARED
    }

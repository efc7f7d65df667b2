"""The figures of reports: tables computed by Spark, assembled as plain values.

A report of a period has: its coverage (hours with rows, of how many), totals, the previous period's
totals, tables (lists of rows), and the expectation by hour. An hour's report has the same without
the comparison with other hours.

An hour's expectation is the median of the same hour of the day in the days before; its spread is
the median absolute deviation (MAD), which a few odd days do not change. An hour is unusual if it
deviates by more than LIMIT spreads, and by more than a share of the expectation, and by more than a
handful of messages; with fewer than LEAST_DAYS days before it nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from spark.jobs import forecast, histogram, ledger, periods, reports, schema
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.parallel import run_parallel
from spark.jobs.periods import Kind

_HOURLY_ROWS = 50
DAMAGED = "damaged_files"
"""The table of raw files whose rows a report lacks."""
LIMIT = 5.0
TO_SIGMA = 1.4826
LEAST_SHARE = 0.3
LEAST_MESSAGES = 50
LEAST_DAYS = 4
MEASURES = ("messages", "failed")


def hourly(
    spark: SparkSession, book: Ledger, start: datetime, end: datetime, home: str = ""
) -> list[dict[str, Any]]:
    """One report for each hour from `start` to before `end` that is rolled up.

    `home` is the node's own domain.
    """
    entries = book.entries(start, end)
    frames = {
        name: ledger.read(spark, book, name, entries).withColumn("period", f.col("hour"))
        for name in schema.ROLL_UP
    }
    traffic, latency = frames["traffic"], frames["latency"]
    parties = frames["parties"].where(f.col("role").isin(schema.TALKER, schema.LISTENER))
    made = _fetch(
        {
            "traffic": reports.traffic(traffic, _HOURLY_ROWS),
            "neighbours": reports.neighbours(traffic, home, _HOURLY_ROWS),
            "hours": reports.by_hour(traffic),
            "parties": reports.parties(parties.withColumn("age", f.lit(reports.NOW)), _HOURLY_ROWS),
            "distinct": reports.distinct(frames["distinct"]),
            "latency": reports.latency(latency, latency.where(f.col("component") == "")),
            reports.SESSIONS: reports.sessions(frames["sessions"], _HOURLY_ROWS),
            reports.SESSION_HOURS: reports.session_hours(frames["sessions"]),
            reports.RESERVATIONS: reports.reservations(frames["sessions"], _HOURLY_ROWS),
            reports.RESERVATION_HOURS: reports.reservation_hours(frames["sessions"]),
            reports.P2P: reports.p2p(traffic, _HOURLY_ROWS),
        }
    )
    return [
        _report(Kind.HOURLY, hour, hour + timedelta(hours=1), made.get(hour, {}), {hour: entry})
        for hour, entry in entries.items()
    ]


def of_period(
    spark: SparkSession,
    book: Ledger,
    days: Ledger,
    kind: Kind,
    start: datetime,
    home: str = "",
) -> dict[str, Any]:
    """The report of the day, week, month or year that begins at `start`.

    It is made from the roll-up of the days, that of a year from that of the months. `book` tells
    which hours there are, `home` is the node's own domain.
    """
    end, previous = periods.after(kind, start), periods.before(kind, start)
    past = min(previous, start - periods.HISTORY)
    is_year = kind is Kind.YEARLY

    def read(name: str, since: datetime = start) -> DataFrame:
        found = ledger.read(spark, days, name, days.entries(since, end))
        return found.withColumn("period", f.lit(start))

    hour = f.col("hour")
    hours, parties = read("hours", past), read("parties", past)
    age = (
        f.when(hour >= f.lit(start), reports.NOW)
        .when(hour >= f.lit(previous), reports.PREVIOUS)
        .otherwise(reports.EARLIER)
    )
    is_runtime, is_now = f.col("role") == schema.RUNTIME, hour >= f.lit(start)
    by_hour = reports.by_hour(hours.withColumn("past", ~is_now), "past")
    whole_days = forecast.days(by_hour)
    found = _fetch(
        {
            "parties": reports.parties(parties.where(is_now | is_runtime).withColumn("age", age)),
            "traffic": reports.traffic(read("traffic")),
            "neighbours": reports.neighbours(read("traffic"), home),
            "days": whole_days,
            "forecast": forecast.forecast(whole_days, f.lit(end - timedelta(days=1))),
            "hours": reports.by_day(by_hour.where(~f.col("past"))) if is_year else judged(by_hour),
            "latency": reports.latency(read("latency"), read("latency_hours")),
            "distinct": reports.distinct(read("distinct")),
            reports.SESSIONS: reports.sessions(read("sessions")),
            reports.SESSION_HOURS: reports.session_hours(read("sessions")),
            reports.RESERVATIONS: reports.reservations(read("sessions")),
            reports.RESERVATION_HOURS: reports.reservation_hours(read("sessions")),
            reports.P2P: reports.p2p(read("traffic")),
            "previous": reports.totals(hours.where(~is_now & (hour >= f.lit(previous)))),
        }
    )
    made = found.get(start, {})
    report = _report(kind, start, end, made, book.entries(start, end))
    report["looked_back_hours"] = len(book.entries(past, start))
    report["previous"] = _first(made, "previous")
    report["previous_hours"] = len(book.entries(previous, start))
    report["change"] = _change(report["totals"], report["previous"])
    report["step_hours"] = 24 if is_year else 1
    report["anomalies"] = [
        row for row in report["tables"]["hours"] if row.get("messages_odd") or row.get("failed_odd")
    ]
    return report


Made = dict[str, list[dict[str, Any]]]
OF = "of "
"""In front of a table's name: how many rows there were to choose the largest from."""
_PARTIES = ("address", "messages", "bytes", "deliveries")
_PERCENTILES = (
    "messages", *(histogram.name(p) for p in histogram.PERCENTILES), "highest_us",
)  # fmt: skip
_COLUMNS: dict[str, tuple[str, ...]] = {
    **{name: (*keys, *reports.COUNTS) for name, keys in reports.TRAFFIC.items()},
    reports.CAUSES: (*reports.TRAFFIC[reports.CAUSES], "messages"),
    **dict.fromkeys((reports.PEERS, reports.NETWORKS), ("name", "messages", *reports.SIDES)),
    reports.TALKERS: _PARTIES,
    reports.LISTENERS: _PARTIES,
    reports.NEW: ("address", "messages", "last_hour"),
    reports.SILENT: ("address", "messages", "last_hour"),
    "latency": _PERCENTILES,
    "latency_hours": ("hour", *_PERCENTILES),
    "latency_types": ("type", "component", *_PERCENTILES),
}
"""Of tables that come together with others, and so with their columns."""


def _fetch(queries: dict[str, DataFrame]) -> dict[datetime, Made]:
    """period → table → rows in their order."""
    found: dict[datetime, Made] = {}
    fetched = run_parallel([reports.plain(query).collect for query in queries.values()])
    for name, rows in zip(queries, fetched, strict=True):
        every = [row.asDict() for row in rows]
        for row in sorted(every, key=lambda row: (row["period"], row.get("rank", 0))):
            period = datetime.fromisoformat(row.pop("period"))
            table = row.pop("table", name)
            row.pop("rank", None)
            of_period = found.setdefault(period, {})
            if "of" in row:
                of_period[OF + table] = [{"rows": row.pop("of")}]
            columns = _COLUMNS.get(table, tuple(row))
            of_period.setdefault(table, []).append({column: row[column] for column in columns})
    return found


def _report(
    kind: Kind,
    start: datetime,
    end: datetime,
    made: Made,
    there: dict[datetime, Entry],
) -> dict[str, Any]:
    single = (reports.TOTALS, "previous", "latency", "distinct")
    tables = {
        name: rows for name, rows in made.items() if name not in single and not name.startswith(OF)
    }
    for name in ("hours", "latency_hours", reports.SESSION_HOURS, reports.RESERVATION_HOURS):
        tables.setdefault(name, []).sort(key=lambda row: row["hour"])
    for row in tables.get("days", []):
        row["day"] = row["day"][:10]
    tables.get("days", []).sort(key=lambda row: row["day"])
    tables.get("forecast", []).sort(
        key=lambda row: (forecast.MEASURES.index(row["measure"]), row["day"])
    )
    for name in (
        "latency_types", reports.SESSIONS, reports.RESERVATIONS, reports.P2P, reports.TALKERS,
        reports.LISTENERS, reports.PEERS, reports.NETWORKS, *reports.TRAFFIC,
    ):  # fmt: skip
        if name not in single:
            tables.setdefault(name, [])
    damaged = damaged_files(there)
    tables[DAMAGED] = damaged[: reports.LONGEST]
    return {
        "kind": str(kind),
        "start": start.astimezone(UTC).isoformat(),
        "end": end.astimezone(UTC).isoformat(),
        "hours_of_period": round((end - start) / timedelta(hours=1)),
        "hours_recorded": [hour.isoformat() for hour, entry in there.items() if entry.rows],
        "hours_incomplete": [hour.isoformat() for hour, entry in there.items() if entry.lost],
        "rows": sum(entry.rows for entry in there.values()),
        "totals": _first(made, reports.TOTALS),
        "distinct": {row["role"]: row["estimate"] for row in made.get("distinct", [])},
        "latency": _first(made, "latency"),
        "tables": tables,
        "rows_of": {
            name.removeprefix(OF): rows[0]["rows"]
            for name, rows in made.items()
            if name.startswith(OF) and name.removeprefix(OF) in tables
        }
        | {DAMAGED: len(damaged)},
    }


def damaged_files(there: Mapping[datetime, Entry]) -> list[dict[str, str]]:
    """The raw files whose rows these hours lack, and why they cannot be read."""
    return [
        {"hour": hour.isoformat(), "file": name, "fault": fault}
        for hour, entry in there.items()
        for name, fault in sorted(entry.lost.items())
    ]


def _first(made: Made, table: str) -> dict[str, Any]:
    return made.get(table, [{}])[0]


def _change(now: dict[str, Any], previous: dict[str, Any]) -> dict[str, float | None]:
    """The change of each count as a share of the previous period's; None if that had nothing."""
    return {
        name: round(now.get(name, 0) / previous[name] - 1, 4) if previous.get(name) else None
        for name in reports.COUNTS
    }


def judged(hours: DataFrame) -> DataFrame:
    """Mark the hours that are out of the ordinary.

    Args:
        hours: columns hour, the measures (messages, failed, …), and past: whether it is only there
            to compare with.

    Returns:
        The hours that are not past, with `days` (how many they were compared with), for each
        measure what was expected and its spread, and `<measure>_odd`: high, low or "".
    """
    at_that_time = Window.partitionBy(f.hour("hour"))
    is_past = f.col("past")
    hours = hours.withColumn("days", f.count(f.when(is_past, 1)).over(at_that_time))
    for measure in MEASURES:
        then = f.collect_list(f.when(is_past, f.col(measure))).over(at_that_time)
        hours = hours.withColumn(f"{measure}_then", then)
    hours = hours.where(~is_past).drop("past")
    for measure in MEASURES:
        then, expected = f.col(f"{measure}_then"), f.col(f"{measure}_expected")
        distances = f.transform(then, partial(_distance, expected))
        away = f.col(measure) - expected
        far = f.greatest(
            f.col(f"{measure}_spread") * (LIMIT * TO_SIGMA),
            expected * LEAST_SHARE,
            f.lit(LEAST_MESSAGES),
        )
        odd = (
            f.when(f.col("days") < LEAST_DAYS, "")
            .when(away > far, "high")
            .when(-away > far, "low")
            .otherwise("")
        )
        hours = (
            hours.withColumn(f"{measure}_expected", _median(then))
            .withColumn(f"{measure}_spread", _median(distances))
            .withColumn(f"{measure}_odd", odd)
            .drop(f"{measure}_then")
        )
    return hours


def _distance(of: Column, number: Column) -> Column:
    return f.abs(number - of)


def _median(numbers: Column) -> Column:
    """Of an array; null if it is empty."""
    ordered, many = f.array_sort(numbers), f.size(numbers)
    lower = f.get(ordered, f.floor((many - 1) / 2).cast("int"))
    return (lower + f.get(ordered, f.floor(many / 2).cast("int"))) / 2

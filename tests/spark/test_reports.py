"""Reports say what the record says: checked against an independent computation."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import job_main, pages
from spark.jobs.periods import Kind
from tests.length import length
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]
REACHED = "outcome in ('delivered', 'answered', 'queued')"
HOUR = "strftime(\"at\", '%Y-%m-%dT%H:00:00+00:00')"
NEXT = DAY + timedelta(days=1)


def fill(record: Path, rows: int, days: int = 2, seed: int = 7, name: str = "w") -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(rows, days, seed, NEXT)):
        files.write(int(hour.timestamp()), table)


def daily(spark: SparkSession, record: Path, name: str, **how: Any) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, name, **how)
    return made["reports"][0]


def by(report: dict[str, Any], table: str, *keys: str) -> dict[tuple[Any, ...], int]:
    return {tuple(row[key] for key in keys): row["messages"] for row in report["tables"][table]}


def check(report: dict[str, Any], record: Path) -> None:
    truth = Independent(record, DAY, NEXT)
    before = Independent(record, DAY - timedelta(days=1), DAY)
    assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
    assert report["previous"] == {"dropped": 0, "refused": 0} | before.totals()
    assert by(report, "types", "type") == truth.counts("type")
    assert by(report, "components", "component") == truth.counts("component")
    assert by(report, "pairs", "from_domain", "to_domain") == truth.counts(
        "from_domain", "to_domain"
    )
    assert by(report, "causes", "outcome", "code", "effect", "rule") == truth.causes()
    by_hour = {(row["hour"][11:13],): row["messages"] for row in report["tables"]["hours"]}
    assert by_hour == truth.counts("strftime(\"at\", '%H')")
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    assert list(by(report, "talkers", "address").items()) == talkers[:100]
    assert report["rows_of"]["talkers"] == len(talkers)
    for share, name in ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99")):
        assert report["latency"][name] == pytest.approx(truth.percentile(share), rel=0.02)
    assert report["latency"]["highest_us"] == truth.highest()
    distinct = {
        "talker": truth.distinct("sender"),
        "listener": truth.distinct('"to"', REACHED),
        "runtime": truth.distinct("who"),
    }
    assert report["distinct"].keys() == distinct.keys()
    for role, addresses in distinct.items():
        assert report["distinct"][role] == pytest.approx(len(addresses), rel=0.02)
    now, then = truth.distinct("who"), before.distinct("who")
    for table, expected in (("new_runtimes", now - then), ("silent_runtimes", then - now)):
        found = {row["address"] for row in report["tables"][table]}
        assert found <= expected
        assert len(found) == min(len(expected), 200)
        assert report["rows_of"][table] == len(expected)
        assert expected


def test_a_report_equals_an_independent_computation(spark: SparkSession, record: Path) -> None:
    fill(record, length(100_000, full=1_000_000))
    check(daily(spark, record, "a"), record)


def hourly(spark: SparkSession, record: Path, name: str, **how: Any) -> list[dict[str, Any]]:
    made = job_main.make(spark, Kind.HOURLY, record.as_uri(), DAY, NEXT, name, **how)  # file:///…
    reports: list[dict[str, Any]] = made["reports"]
    return reports


def test_a_week_is_made_of_its_days_and_a_late_hour_makes_its_day_again(
    spark: SparkSession, record: Path
) -> None:
    monday = DAY - timedelta(days=DAY.weekday())
    whole = (monday, monday + timedelta(days=7))

    def weekly(name: str, **how: Any) -> dict[str, Any]:
        made = job_main.make(spark, Kind.WEEKLY, str(record), *whole, name, **how)
        report: dict[str, Any] = made["reports"][0]
        return report

    def check_week(report: dict[str, Any]) -> None:
        truth = Independent(record, *whole)
        assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
        assert by(report, "types", "type") == truth.counts("type")
        assert len(report["tables"]["hours"]) == len(truth.counts(HOUR))
        talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
        assert list(by(report, "talkers", "address").items()) == talkers[:100]
        assert report["latency"]["p99"] == pytest.approx(truth.percentile(0.99), rel=0.02)
        assert report["distinct"]["talker"] == pytest.approx(len(talkers), rel=0.02)

    def days_made_by() -> dict[str, str]:
        path = record / "roll-up" / "days" / f"{DAY:%Y-%m}.json"
        return {day: entry["run"] for day, entry in json.loads(path.read_text()).items()}

    fill(record, 6_000, days=6)
    first = weekly("a")
    check_week(first)
    assert weekly("again") == first
    assert set(days_made_by().values()) == {"a-days-0"}
    fill(record, 300, days=1, seed=8, name="late")
    check_week(weekly("late"))
    made_by = days_made_by()
    assert made_by.pop(f"{DAY:%d}") == "late-days-0"
    assert set(made_by.values()) == {"a-days-0"}


def test_a_month_that_is_partly_recorded_is_told_as_such(spark: SparkSession, record: Path) -> None:
    month = (DAY.replace(day=1), (DAY + timedelta(days=31)).replace(day=1))
    october = (month[0] - timedelta(days=31), month[0])
    fill(record, 2_000, days=DAY.day + 2)  # the last two days of October, November up to DAY
    made = job_main.make(spark, Kind.MONTHLY, str(record), *month, "a")
    (report,) = made["reports"]
    truth, before = Independent(record, *month), Independent(record, *october)
    assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
    assert report["previous"] == {"dropped": 0, "refused": 0} | before.totals()
    assert by(report, "types", "type") == truth.counts("type")
    by_hour = {
        (hour.replace("Z", "+00:00"),): n for (hour,), n in by(report, "hours", "hour").items()
    }
    assert by_hour == truth.counts(HOUR)
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    assert list(by(report, "talkers", "address").items()) == talkers[:100]
    assert report["latency"]["p99"] == pytest.approx(truth.percentile(0.99), rel=0.02)
    for role, column in (("talker", "sender"), ("runtime", "who")):
        assert report["distinct"][role] == pytest.approx(len(truth.distinct(column)), rel=0.02)

    assert report["hours_of_period"] == 30 * 24
    assert len(report["hours_recorded"]) == len(truth.counts(HOUR)) <= DAY.day * 24
    assert report["previous_hours"] == len(before.counts(HOUR)) <= 2 * 24
    missing = pages.missing_hours(report, now=month[1])
    assert len(missing) + len(report["hours_recorded"]) == 30 * 24
    assert set(missing) >= {NEXT + timedelta(hours=n) for n in range(10 * 24)}  # to its end
    compared = pages.context(report)["compared"]
    assert f"of which {report['previous_hours']} hours are recorded" in compared


def messages(reports: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    return {(report["start"],): report["totals"]["messages"] for report in reports}


def test_each_hour_has_its_report_a_rerun_gives_the_same_and_late_rows_are_added(
    spark: SparkSession, record: Path
) -> None:
    fill(record, 60, days=1)
    first = hourly(spark, record, "a")
    assert messages(first) == Independent(record, DAY, NEXT).counts(HOUR)
    assert all(report["hours_of_period"] == 1 for report in first)
    assert hourly(spark, record, "b", again=True) == first
    fill(record, 40, days=1, seed=8, name="late")
    assert messages(hourly(spark, record, "c")) == Independent(record, DAY, NEXT).counts(HOUR)


def test_a_period_without_rows_is_said_to_be_empty(spark: SparkSession, record: Path) -> None:
    report = daily(spark, record, "a")
    assert report["hours_recorded"] == []
    assert report["totals"] == {}
    assert report["tables"]["pairs"] == []

"""The report of a year is made of its months, and says what the record says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, sessions
from spark import job_main, pages
from spark.jobs.periods import Kind
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
YEAR = datetime(2026, 1, 1, tzinfo=UTC)
END, BEFORE = datetime(2027, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
DAYS = [datetime(2025, 12, 30, tzinfo=UTC), *(datetime(2026, 3, n, tzinfo=UTC) for n in (1, 31)),
        datetime(2026, 11, 19, tzinfo=UTC)]  # fmt: skip
BY_DAY = "strftime(\"at\", '%Y-%m-%d')"
NONE = {"dropped": 0, "refused": 0}


def fill(record: Path, day: datetime, rows: int, seed: int, name: str) -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    plan = Plan(rows, 1, seed, day + timedelta(days=1))
    for hour, table in (*hours(plan), *sessions(plan)):
        files.write(int(hour.timestamp()), table)


def yearly(spark: SparkSession, record: Path, name: str) -> dict[str, Any]:
    made = job_main.make(spark, Kind.YEARLY, str(record), YEAR, END, name)
    report: dict[str, Any] = made["reports"][0]
    return report


def check(report: dict[str, Any], record: Path) -> None:
    truth, before = Independent(record, YEAR, END), Independent(record, BEFORE, YEAR)
    assert report["totals"] == NONE | truth.totals()
    assert report["previous"] == NONE | before.totals()
    tables = report["tables"]
    assert {(row["type"],): row["messages"] for row in tables["types"]} == truth.counts("type")
    by_day = {(row["hour"][:10],): row["messages"] for row in tables["hours"]}
    assert by_day == truth.counts(BY_DAY)
    assert len(tables["latency_hours"]) == len(by_day)
    talkers = sorted(truth.counts("sender").items(), key=lambda one: (-one[1], one[0]))
    found = [((row["address"],), row["messages"]) for row in tables["talkers"]]
    assert found == talkers[:100]
    assert report["latency"]["p99"] == pytest.approx(truth.percentile(0.99), rel=0.02)
    assert report["distinct"]["talker"] == pytest.approx(len(talkers), rel=0.02)
    steps = {
        (row["event"], row["ending"], row["code"]): row["sessions"] for row in tables["sessions"]
    }
    assert steps == {key: row[0] for key, row in truth.sessions().items()}


def test_a_year_is_made_of_its_months_and_a_late_row_makes_its_month_again(
    spark: SparkSession, record: Path
) -> None:
    for number, day in enumerate(DAYS):
        fill(record, day, 1_500, number, f"w{number}")
    first = yearly(spark, record, "a")
    check(first, record)
    assert first["hours_of_period"] == 365 * 24
    shown = pages.context(first)
    assert len(shown["chart"]["hours"]) == 365
    assert [table["title"] for table in shown["tables"]][0] == "By day"
    assert yearly(spark, record, "again") == first

    fill(record, DAYS[2], 300, 9, "late")
    check(yearly(spark, record, "late"), record)
    kept = record / "roll-up" / "months" / "2026.json"
    made_by = {month: entry["run"] for month, entry in json.loads(kept.read_text()).items()}
    assert made_by == {"03": "late-months-0", "11": "a-months-0"}

"""The report on sessions, beside an independent count."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, sessions
from spark import job_main, pages
from spark.jobs.periods import Kind
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NEXT = DAY + timedelta(days=1)
PLAN = Plan(20_000, 2, 5, NEXT)


def fill(record: Path, *, of_messages: bool = True, since: int = 0) -> None:
    files = RecordFiles(f"{record}/raw", "w", max_bytes=1 << 40, min_free=0)
    for hour, table in (*(hours(PLAN) if of_messages else ()), *sessions(PLAN)):
        if hour.hour >= since:
            files.write(int(hour.timestamp()), table)


def daily(spark: SparkSession, record: Path, name: str) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, name)
    report: dict[str, Any] = made["reports"][0]
    return report


def check(report: dict[str, Any], record: Path) -> None:
    truth = Independent(record, DAY, NEXT)
    found = {
        (row["event"], row["ending"], row["code"]): row for row in report["tables"]["sessions"]
    }
    expected = truth.sessions()
    assert found.keys() == expected.keys()
    assert {event for event, *_ in found} == {"opened", "resumed", "lost", "ended"}
    for key, (steps, resumptions, longest, median, most) in expected.items():
        row = found[key]
        assert (row["sessions"], row["resumptions"], row["longest_s"]) == (
            steps,
            resumptions,
            longest,
        )
        if key[0] in ("lost", "ended"):
            assert row["p50_s"] == pytest.approx(median, rel=0.021)
            assert row["p99_s"] == pytest.approx(most, rel=0.021)
    by_hour = {
        (row["hour"][:13], event): row[event]
        for row in report["tables"]["session_hours"]
        for event in ("opened", "resumed", "lost", "ended")
        if row[event]
    }
    assert by_hour == truth.session_hours()


def test_sessions_are_told_by_event_ending_and_code_and_messages_stay_as_they_were(
    spark: SparkSession, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    fill(record)
    report = daily(spark, record, "a")
    check(report, record)
    assert report["totals"]["messages"] == sum(
        Independent(record, DAY, NEXT).counts("type").values()
    )
    assert report["rows"] == report["totals"]["messages"] + sum(
        row["sessions"] for row in report["tables"]["sessions"]
    )
    drawn = pages.context(report)["chart"]["sessions"]
    assert sum(drawn["opened"]) > 0

    # Compacted, and rolled up from the rows again.
    noon = DAY + timedelta(hours=12)
    for number in range(8):
        files = RecordFiles(f"{record}/raw", f"x{number}", max_bytes=1 << 40, min_free=0)
        files.write(int(noon.timestamp()), dict(sessions(Plan(2_000, 2, number, NEXT)))[noon])
    check(daily(spark, record, "more"), record)
    folder = record / "raw" / f"date={DAY:%Y-%m-%d}" / "hour=12"
    assert len(list(folder.glob("*.parquet"))) == 1
    check(daily(spark, record, "compacted"), record)


def test_hours_with_sessions_alone_are_recorded_hours(spark: SparkSession, tmp_path: Path) -> None:
    record = tmp_path / "record"
    fill(record, of_messages=False, since=20)
    report = daily(spark, record, "a")
    check(report, record)
    assert report["totals"] == {}
    assert len(report["hours_recorded"]) == 4
    pages.context(report)

"""What the days of a report let expect, beside an independent computation."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import job_main, pages
from spark.jobs import forecast
from spark.jobs.periods import Kind
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NEXT = DAY + timedelta(days=1)
DAYS = 10
T_OF_8 = 2.306004
"""Student's t, 95 of 100, for ten days: from a table."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days that grow by a fifth each, so that there is something to forecast."""
    place = tmp_path_factory.mktemp("whole")
    files = RecordFiles(f"{place}/raw", "w", max_bytes=1 << 40, min_free=0)
    for number in range(DAYS):
        end = NEXT - timedelta(days=number)
        for hour, table in hours(Plan(20_000 - 1_200 * number, 1, number, end)):
            files.write(int(hour.timestamp()), table)
    return place


@pytest.fixture(scope="module")
def report(spark: SparkSession, whole: Path) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(whole), DAY, NEXT, "a")
    found: dict[str, Any] = made["reports"][0]
    return found


@pytest.mark.parametrize("measure", forecast.MEASURES)
def test_the_forecast_is_the_line_through_the_days(
    report: dict[str, Any], whole: Path, measure: str
) -> None:
    every = Independent(whole, DAY - timedelta(days=DAYS), NEXT)
    slope, intercept, r2, days = every.line(measure, DAY)
    rows = [row for row in report["tables"]["forecast"] if row["measure"] == measure]
    assert len(rows) == len(forecast.AHEAD)
    for ahead, row in zip(forecast.AHEAD, rows, strict=True):
        assert row["day"] == f"{DAY + timedelta(days=ahead):%Y-%m-%d}"
        assert row["forecast"] == round(intercept + slope * ahead)
        assert row["change_per_day"] == pytest.approx(slope, abs=0.01)
        assert (row["r2"], row["days"]) == (pytest.approx(r2, abs=1e-4), days)
        assert row["low"] <= row["forecast"] <= row["high"]
    assert days == len(report["tables"]["days"]) == DAYS
    drawn = pages.context(report)["chart"]["forecast"]
    assert len(drawn["labels"]) == DAYS + len(forecast.AHEAD)


def test_the_range_of_a_forecast_is_that_of_one_more_day(spark: SparkSession) -> None:
    values = [103, 109, 118, 121, 133, 138, 151, 149, 162, 168]
    rows = [
        (DAY, DAY - timedelta(days=9 - number), value, 10 * value, value)
        for number, value in enumerate(values)
    ]
    days = spark.createDataFrame(
        rows, "period timestamp, day timestamp, messages long, bytes long, busiest_hour long"
    )
    found = forecast.forecast(days, f.lit(DAY), (7,)).where("measure = 'bytes'").collect()
    (row,) = found
    xs, ys = list(range(-9, 1)), [10.0 * value for value in values]
    middle, mean = sum(xs) / 10, sum(ys) / 10
    sxx = sum((x - middle) ** 2 for x in xs)
    slope = sum((x - middle) * (y - mean) for x, y in zip(xs, ys, strict=True)) / sxx
    expected = mean + slope * (7 - middle)
    rest = sum((y - mean - slope * (x - middle)) ** 2 for x, y in zip(xs, ys, strict=True))
    away = T_OF_8 * math.sqrt(rest / 8 * (1 + 1 / 10 + (7 - middle) ** 2 / sxx))
    assert row["forecast"] == round(expected)
    assert row["low"] == pytest.approx(expected - away, rel=0.002)
    assert row["high"] == pytest.approx(expected + away, rel=0.002)


def test_few_days_or_days_with_gaps_give_no_forecast(spark: SparkSession) -> None:
    every = [
        (DAY, DAY - timedelta(days=day) + timedelta(hours=hour), 10, 100)
        for day in range(8)
        for hour in range(24)
        if (day, hour) not in {(2, 5), (3, 6)}
    ]
    hourly = spark.createDataFrame(
        every, "period timestamp, hour timestamp, messages long, bytes long"
    )
    days = forecast.days(hourly)
    assert days.count() == 6
    assert forecast.forecast(days, f.lit(DAY)).count() == 0

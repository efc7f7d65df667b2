"""What is kept no longer: old days of the ledger, tables nobody names, old reports."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark import retention
from spark.models import Report

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def test_a_days_ledger_goes_with_the_tables_that_it_alone_named(tmp_path: Path) -> None:
    ledger, runs = tmp_path / "roll-up" / "ledger", tmp_path / "roll-up" / "runs"
    ledger.mkdir(parents=True)
    for day, run in (("2026-01-01", "old"), ("2026-11-19", "kept")):
        (ledger / f"{day}.json").write_text(json.dumps({"05": {"run": run}}))
    for run in ("old", "kept", "orphan", "under-way"):
        (runs / run / "traffic").mkdir(parents=True)
        at = NOW - timedelta(hours=1 if run == "under-way" else 48)
        os.utime(runs / run, (at.timestamp(), at.timestamp()))
    assert retention.delete_old_roll_ups(str(tmp_path), NOW, days=100) == 3
    assert sorted(path.name for path in runs.iterdir()) == ["kept", "under-way"]
    assert [path.name for path in ledger.iterdir()] == ["2026-11-19.json"]
    assert retention.delete_old_roll_ups(str(tmp_path), NOW, days=100) == 0


def test_tables_of_days_stay_as_long_as_their_month_is_kept(tmp_path: Path) -> None:
    days, runs = tmp_path / "roll-up" / "days", tmp_path / "roll-up" / "runs"
    days.mkdir(parents=True)
    (days / "_2026-11.json.tmp").write_text("half")
    for month, run in (("2026-07", "old"), ("2026-08", "edge"), ("2026-11", "new")):
        (days / f"{month}.json").write_text(json.dumps({"12": {"run": run}}))
        (runs / run / "parties").mkdir(parents=True)
        at = (NOW - timedelta(days=30)).timestamp()
        os.utime(runs / run, (at, at))
    assert retention.delete_old_roll_ups(str(tmp_path), NOW, days=100) == 2  # 2026-08-12
    assert sorted(path.name for path in runs.iterdir()) == ["edge", "new"]
    assert not (days / "2026-07.json").exists()


def test_a_ledger_that_cannot_be_read_deletes_no_tables_and_keeps_no_other_from_going(
    tmp_path: Path,
) -> None:
    ledger, runs = tmp_path / "roll-up" / "ledger", tmp_path / "roll-up" / "runs"
    ledger.mkdir(parents=True)
    (ledger / "2026-11-18.json").write_text('{"05": {"run": "ke')
    (ledger / "2026-01-01.json").write_text("{}")
    (runs / "kept" / "traffic").mkdir(parents=True)
    os.utime(runs / "kept", (0, 0))
    assert retention.delete_old_roll_ups(str(tmp_path), NOW, days=100) == 1
    assert [path.name for path in runs.iterdir()] == ["kept"]


@pytest.mark.django_db
def test_reports_of_hours_go_before_those_of_days(settings: Any) -> None:
    settings.REPORTS = settings.REPORTS | {"HOURLY_KEPT_DAYS": 10, "KEPT_DAYS": 100}
    for kind, age in (("hourly", 9), ("hourly", 11), ("daily", 99), ("daily", 101)):
        start = NOW - timedelta(days=age)
        Report.objects.create(kind=kind, start=start, end=start)
    assert retention.delete_old_reports(NOW) == 2
    ages = sorted((NOW - report.start).days for report in Report.objects.all())
    assert ages == [9, 99]

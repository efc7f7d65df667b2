"""What is kept no longer: old days of the ledger, tables nobody names, old reports."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from msgnode.models import Alarm
from msgnode.storage import believed_clock
from spark import retention, tasks
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
    settings.REPORTS = settings.REPORTS | {"KEPT_DAYS": 100}
    for kind, age in (("hourly", 34), ("hourly", 36), ("daily", 99), ("daily", 101)):
        start = NOW - timedelta(days=age)
        Report.objects.create(kind=kind, start=start, end=start)
    assert retention.delete_old_reports(NOW) == 2
    ages = sorted((NOW - report.start).days for report in Report.objects.all())
    assert ages == [34, 99]


@pytest.mark.django_db
def test_hours_that_go_before_a_run_has_counted_them_are_told(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path
    settings.RECORD = settings.RECORD | {"URL": str(tmp_path)}
    ledger = tmp_path / "roll-up" / "ledger"
    ledger.mkdir(parents=True)
    for day, counted in (("2026-01-01", '{"05": {"run": "a"}}'), ("2026-11-19", "{}")):
        (ledger / f"{day}.json").write_text(counted)
    for hour in ("date=2026-01-01/hour=05", "date=2026-01-01/hour=06", "date=2026-01-02/hour=00"):
        (tmp_path / "raw" / hour).mkdir(parents=True)
        (tmp_path / "raw" / hour / "a.parquet").write_text("rows")
    monkeypatch.setattr("spark.tasks.timezone.now", lambda: NOW)
    for _ in range(2):
        tasks.retain()
    alarm = Alarm.objects.get(kind=retention.UNCOUNTED)
    assert alarm.text.startswith("2 hours of the record, 2026-01-01 06:00 to 2026-01-02 00:00 UTC")
    assert alarm.count == 1


@pytest.mark.django_db
def test_a_clock_that_jumps_a_year_ahead_deletes_nothing(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path
    settings.RECORD = settings.RECORD | {"URL": str(tmp_path / "record"), "RAW_DAYS": 10}
    raw = tmp_path / "record" / "raw"
    days = (NOW - timedelta(days=each) for each in (1, 11))
    hour, old = (raw / f"date={day:%Y-%m-%d}" / "hour=05" for day in days)
    ledger = tmp_path / "record" / "roll-up" / "ledger"
    run = tmp_path / "record" / "roll-up" / "runs" / "under-way"
    for folder in (hour, old, ledger, run):
        folder.mkdir(parents=True)
    for file in (hour / "a.parquet", old / "a.parquet"):
        file.write_text("rows")
    (ledger / "2026-11-19.json").write_text("{}")
    Report.objects.create(kind="daily", start=NOW - timedelta(days=1), end=NOW)

    def retain_at(now: datetime) -> dict[str, Any]:
        monkeypatch.setattr("spark.tasks.timezone.now", lambda: now)
        return tasks.retain()

    assert retain_at(NOW) == {"raw hours": 1, "roll-up": 0, "reports": 0}
    for years in (1, 10):
        jumped = retain_at(NOW + timedelta(days=365 * years))
        assert jumped == {"raw hours": 0, "roll-up": 0, "reports": 0}
    assert (hour / "a.parquet").exists()
    assert run.exists()
    standing = Alarm.objects.filter(kind=believed_clock.ALARM, cleared_at=None)
    assert standing.exists()
    retain_at(NOW + timedelta(hours=1))
    assert not standing.exists()

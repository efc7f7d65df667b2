"""Retention: old hours go, the oldest go when there is no room, young ones never."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgnode.traffic import retention
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def fill(record: Path, days: int) -> int:
    files = RecordFiles(f"{record}/raw", "w", max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(days * 400, days, 1, NOW)):
        files.write(int(hour.timestamp()), table)
    return sum(path.stat().st_size for path in record.rglob("*.parquet"))


def kept(record: Path) -> list[datetime]:
    paths = record.rglob("*.parquet")
    return sorted(hour for path in paths if (hour := retention.hour_of(str(path))))


def test_hours_older_than_their_days_go(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    assert retention.delete_old(str(tmp_path), NOW, days=1, max_bytes=1 << 40) == 48
    assert kept(tmp_path)[0] == NOW - timedelta(days=1)
    assert len(list((tmp_path / "raw").iterdir())) == 1
    assert retention.delete_old(str(tmp_path), NOW, days=1, max_bytes=1 << 40) == 0


def test_near_the_cap_the_oldest_go_but_never_the_youngest(tmp_path: Path) -> None:
    size = fill(tmp_path, 1)
    retention.delete_old(str(tmp_path), NOW, days=30, max_bytes=size)
    left = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert left <= retention.NEAR_CAP * size
    assert kept(tmp_path)[-1] == NOW - timedelta(hours=1)
    retention.delete_old(str(tmp_path), NOW, days=30, max_bytes=1)
    assert kept(tmp_path) == [NOW - timedelta(hours=n) for n in (3, 2, 1)]


def test_what_a_broken_writer_left_goes_after_a_day(tmp_path: Path) -> None:
    fill(tmp_path, 1)
    left, young = (tmp_path / "raw" / f"_{name}.parquet.tmp" for name in ("old", "young"))
    left.write_text("")
    young.write_text("")
    yesterday = (NOW - timedelta(days=2)).timestamp()
    os.utime(left, (yesterday, yesterday))
    os.utime(young, (NOW.timestamp(), NOW.timestamp()))
    retention.delete_old(str(tmp_path), NOW, days=30, max_bytes=1 << 40)
    assert (left.exists(), young.exists()) == (False, True)


def test_the_same_seed_makes_the_same_traffic_of_exactly_so_many_rows() -> None:
    plan = Plan(5_000, 2, 7, NOW)
    first, second = list(hours(plan)), list(hours(plan))
    assert sum(table.num_rows for _, table in first) == 5_000
    assert all(a[0] == b[0] and a[1].equals(b[1]) for a, b in zip(first, second, strict=True))
    assert not first[0][1].equals(next(hours(Plan(5_000, 2, 8, NOW)))[1])

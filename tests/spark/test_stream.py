"""The stream: the last minutes in the same tables, and the same numbers when the hour closes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours, sessions
from spark import job_main
from spark.jobs import changes
from spark.jobs.periods import Kind
from spark.jobs.storage import Storage
from spark.stream_main import Stream

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
HOME = "example.com"
Reports = dict[str, dict[str, Any]]


def this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def fill(record: Path, hour: datetime, seed: int, name: str = "") -> None:
    """A file more of an hour."""
    plan = Plan(2_400, 1, seed, hour + timedelta(hours=1))
    files = RecordFiles(f"{record}/raw", name or f"w{seed}", max_bytes=1 << 40, min_free=0)
    for made in (hours(plan), sessions(plan)):
        files.write(int(hour.timestamp()), dict(made)[hour])


def by_batch(spark: SparkSession, record: Path, start: datetime, end: datetime) -> Reports:
    """What a scheduled run makes of a copy of the raw rows."""
    copy = record.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(record / "raw", copy / "raw")
    made = job_main.make(spark, Kind.HOURLY, str(copy), start, end, "batch", home=HOME)
    return {each["start"]: each for each in made["reports"]}


@pytest.fixture
def results() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def follow(
    spark: SparkSession, record: Path, tmp_path: Path, results: list[dict[str, Any]]
) -> Iterator[Callable[[], StreamingQuery]]:
    """Start the stream, or go on from its checkpoint."""
    begun: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        stream = Stream(spark, str(record), HOME, results.append)
        begun.append(stream.start(str(tmp_path / "checkpoint"), 0.2))
        return begun[-1]

    yield start
    for query in begun:
        query.stop()


def latest(results: list[dict[str, Any]]) -> Reports:
    return {each["start"]: each for result in results for each in result["reports"]}


@pytest.mark.long
def test_the_stream_has_the_numbers_of_the_schedule_and_goes_on_from_its_checkpoint(
    spark: SparkSession,
    record: Path,
    follow: Callable[[], StreamingQuery],
    results: list[dict[str, Any]],
) -> None:
    now = this_hour()
    before = now - timedelta(hours=1)
    fill(record, before, 1)
    fill(record, now, 2)
    query = follow()
    query.processAllAvailable()
    assert latest(results) == by_batch(spark, record, before, now + timedelta(hours=1))

    # A minute later; a late row; and a file that is written a second time as it was.
    fill(record, now, 3)
    query.processAllAvailable()
    assert [list(latest([result])) for result in results[1:]] == [[now.isoformat()]]
    fill(record, before, 4)
    query.processAllAvailable()
    path = next((record / "raw").rglob("w2-*.parquet"))
    path.write_bytes(path.read_bytes())
    query.processAllAvailable()
    many = len(results)
    assert latest(results) == by_batch(spark, record, before, now + timedelta(hours=1))

    # Ended, and begun again: what came meanwhile is found, and nothing else is done.
    query.stop()
    fill(record, now, 5)
    follow().processAllAvailable()
    assert len(results) == many + 1
    assert latest(results) == by_batch(spark, record, before, now + timedelta(hours=1))


@pytest.mark.long
def test_a_scheduled_run_at_the_same_moment_changes_no_number(
    spark: SparkSession,
    record: Path,
    follow: Callable[[], StreamingQuery],
    results: list[dict[str, Any]],
) -> None:
    now = this_hour()
    before = now - timedelta(hours=3)
    for seed in range(9):
        fill(record, before, seed)
    fill(record, now, 20)
    query = follow()
    end = now + timedelta(hours=1)
    with ThreadPoolExecutor(1) as other:
        run = other.submit(
            job_main.make, spark, Kind.HOURLY, str(record), before, end, "b", home=HOME
        )
        query.processAllAvailable()
        run.result(300)
    fill(record, before, 30)
    fill(record, now, 31)
    query.processAllAvailable()
    expected = by_batch(spark, record, before, end)
    found = latest(results)
    assert found == expected
    made = job_main.make(spark, Kind.HOURLY, str(record), before, end, "c", home=HOME)
    assert {each["start"]: each for each in made["reports"]} == expected


@pytest.mark.long
def test_a_full_disk_of_the_checkpoint_ends_the_stream_and_says_so(
    spark: SparkSession, record: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here: only root may")
    try:
        with pytest.raises(OSError, match="space"), (disk / "filler").open("wb", 0) as file:
            while True:
                file.write(bytes(4096))
        fill(record, this_hour(), 1)
        with pytest.raises(Exception, match="(?i)space"):
            Stream(spark, str(record), HOME, lambda result: None).start(
                str(disk / "checkpoint"), 0.2
            ).awaitTermination(60)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_hours_are_told_once_for_each_change(record: Path) -> None:
    now = this_hour()
    raw = Storage(f"{record}/raw")
    window = (now - timedelta(hours=2), now + timedelta(hours=1))
    first = changes.seen(raw, *window)
    assert (first, changes.changed({}, first)) == ({}, [])
    fill(record, now, 1)
    fill(record, now - timedelta(hours=9), 1)  # too old to look at
    second = changes.seen(raw, *window)
    assert changes.changed(first, second) == [(int(now.timestamp()),)]
    assert changes.changed(second, changes.seen(raw, *window)) == []
    fill(record, now - timedelta(hours=1), 2)
    third = changes.seen(raw, *window)
    assert changes.changed(second, third) == [(int(now.timestamp()) - 3600,)]
    assert changes.changed(third, second) == []  # an hour that is gone

"""Reports on a record in a real object store: Spark without a client of Hadoop's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from msgnode.traffic import retention as raw_rows
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import job_main, report_runs, retention
from spark.jobs.periods import Kind
from spark.models import Report
from tests.object_store import BUCKET, ObjectStore
from tests.spark.conftest import DAY

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.django_db(transaction=True),
]
NEXT = DAY + timedelta(days=1)
BUSY = DAY + timedelta(hours=14)


@pytest.fixture
def environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return object_store


def fill(record: str, name: str, seed: int) -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(4_000, 2, seed, NEXT)):
        if hour >= DAY + timedelta(hours=12) or hour.hour == 3:
            files.write(int(hour.timestamp()), table)


def objects(store: ObjectStore, below: str) -> list[str]:
    selector = fs.FileSelector(f"{BUCKET}/node/{below}", recursive=True, allow_not_found=True)
    found = store.system().get_file_info(selector)
    return [each.path for each in found if each.type == fs.FileType.File]


def test_a_report_of_an_object_store_is_that_of_a_disk(
    spark: SparkSession, environment: ObjectStore, tmp_path: Path, settings: Any
) -> None:
    local = tmp_path / "record"
    for number in range(9):
        for place in (str(local), environment.url):
            fill(place, f"w{number}", number)
    settings.DATA_DIR = tmp_path
    settings.RECORD = settings.RECORD | {"URL": environment.url}
    settings.REPORTS = settings.REPORTS | {
        "MASTER": "local[2]", "MEMORY": "1g", "KEEP_CLASSES": False,
    }  # fmt: skip
    expected = job_main.make(
        spark, Kind.DAILY, str(local), DAY, NEXT, "disk", home=settings.DOMAIN
    )["reports"][0]

    run = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
    assert run is not None
    assert (run.state, run.error) == ("done", "")
    assert Report.objects.get().figures == expected
    # The nine objects of an hour are one now, and nothing is left of the change.
    hour = f"raw/date={BUSY:%Y-%m-%d}/hour={BUSY:%H}"
    (one,) = objects(environment, hour)
    assert one.endswith(".parquet")
    again = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
    assert again is not None
    assert (again.hours_rolled, Report.objects.get().figures) == (0, expected)

    # Rows that come late are counted, and what is too old is deleted.
    for place in (str(local), environment.url):
        fill(place, "late", 99)
    late = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
    expected = job_main.make(
        spark, Kind.DAILY, str(local), DAY, NEXT, "late", home=settings.DOMAIN
    )["reports"][0]
    assert late is not None
    assert Report.objects.get().figures == expected
    future = datetime(2027, 6, 1, tzinfo=UTC)
    assert raw_rows.delete_old(environment.url, future, days=30, max_bytes=1 << 40) > 0
    assert objects(environment, "raw") == []
    assert retention.delete_old_roll_ups(environment.url, future, 30) > 0
    assert objects(environment, "roll-up/ledger") == []

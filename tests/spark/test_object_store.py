"""Reports on a record in a real object store: Spark without a client of Hadoop's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from msgnode.traffic import retention as raw_rows
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import java, job_main, report_runs, retention
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


HOURS = (DAY - timedelta(hours=10), DAY + timedelta(hours=3), BUSY, BUSY + timedelta(hours=1))


def fill(record: str, name: str, seed: int, filled: tuple[datetime, ...] = HOURS) -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    tables = dict(hours(Plan(4_000, 2, seed, NEXT)))
    for hour in filled:
        files.write(int(hour.timestamp()), tables[hour])


def objects(store: ObjectStore, below: str) -> list[str]:
    selector = fs.FileSelector(
        f"{BUCKET}/{store.name}/{below}", recursive=True, allow_not_found=True
    )
    found = store.system().get_file_info(selector)
    return [each.path for each in found if each.type == fs.FileType.File]


def make_here(spark: SparkSession, record: Path, name: str, home: str) -> dict[str, Any]:
    made = job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, name, home=home)
    report: dict[str, Any] = made["reports"][0]
    return report


def start_run(url: str, place: Path, name: str, home: str) -> subprocess.Popen[str]:
    """A run's process, as the node starts it."""
    return subprocess.Popen(
        [
            sys.executable, job_main.__file__, "daily", "--record", url, "--start", DAY.isoformat(),
            "--end", NEXT.isoformat(), "--run", name, "--result", str(place / f"{name}.json"),
            "--conf", "spark.master=local[2]", "--conf", "spark.driver.memory=1g", "--home", home,
        ],
        env=java.environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def end_of(run: subprocess.Popen[str], place: Path, name: str) -> dict[str, Any]:
    """The report of a run that gets to its end."""
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said[-3000:]
    report: dict[str, Any] = json.loads((place / f"{name}.json").read_text())["reports"][0]
    return report


def kill_at(run: subprocess.Popen[str], share: float) -> None:
    """Kill a run and all it started once it has come so far."""
    assert run.stdout is not None
    for line in run.stdout:
        if json.loads(line)["progress"] >= share:
            break
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)


def test_a_report_of_an_object_store_is_that_of_a_disk(
    spark: SparkSession, environment: ObjectStore, tmp_path: Path, settings: Any
) -> None:
    local = tmp_path / "record"
    for number in range(9):
        for place in (str(local), environment.url):
            fill(place, f"w{number}", number, (BUSY,) if number else HOURS)
    settings.DATA_DIR = tmp_path
    settings.RECORD = settings.RECORD | {"URL": environment.url}
    settings.REPORTS = settings.REPORTS | {
        "MASTER": "local[2]", "KEEP_CLASSES": False, "CONF": ["spark.driver.memory=1g"],
    }  # fmt: skip
    expected = make_here(spark, local, "disk", settings.DOMAIN)

    # A run that is killed in the middle leaves nothing that counts, and two at once do no harm.
    kill_at(start_run(environment.url, tmp_path, "killed", settings.DOMAIN), 0.6)
    assert objects(environment, "roll-up/runs") != []
    both = [start_run(environment.url, tmp_path, name, settings.DOMAIN) for name in ("a", "b")]
    for run, name in zip(both, ("a", "b"), strict=True):
        report = end_of(run, tmp_path, name)
        assert report["totals"] == expected["totals"]
        assert report["hours_incomplete"] == []
    # The nine objects of an hour are one then, and nothing is left of the change. Each of two runs
    # may have thrown away what the other was making: then the next one makes it.
    busy = f"raw/date={BUSY:%Y-%m-%d}/hour={BUSY:%H}"
    if len(objects(environment, busy)) == 9:
        again = end_of(start_run(environment.url, tmp_path, "c", settings.DOMAIN), tmp_path, "c")
        assert again["totals"] == expected["totals"]
    names = [path.rpartition("/")[2] for path in objects(environment, busy)]
    files = [name for name in names if not name.startswith("_")]  # but for the decision
    assert [name.partition("-")[0] + name[-8:] for name in files] == ["compact.parquet"], names

    # Rows that come late are counted, and what is too old is deleted.
    for place in (str(local), environment.url):
        fill(place, "late", 99)
    late = report_runs.execute(report_runs.queue(Kind.DAILY, DAY).pk)
    assert late is not None
    assert (late.state, late.error) == ("done", "")
    assert Report.objects.get().figures == make_here(spark, local, "late", settings.DOMAIN)
    future = datetime(2027, 6, 1, tzinfo=UTC)
    assert raw_rows.delete_old(environment.url, future, days=30, max_bytes=1 << 40) > 0
    assert objects(environment, "raw") == []
    assert retention.delete_old_roll_ups(environment.url, future, 30) > 0
    assert objects(environment, "roll-up/ledger") == []

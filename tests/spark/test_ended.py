"""A real run of Spark that is killed or cancelled half-way: nothing half, nothing left behind.

What the next attempt makes of what is there is seen in `test_killed_at_each_step`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import report_runs
from spark.jobs.periods import Kind
from spark.models import Report, ReportRun
from tests.length import length
from tests.spark.conftest import DAY
from tests.waiting import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(300),
    pytest.mark.django_db(transaction=True),
]
NEXT = DAY + timedelta(days=1)
ROWS = length(40_000, full=400_000)


@pytest.fixture
def record(tmp_path: Path, settings: Any) -> Path:
    place = tmp_path / "record"
    files = RecordFiles(f"{place}/raw", "w", max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(ROWS, 1, 7, NEXT)):
        files.write(int(hour.timestamp()), table)
    settings.DATA_DIR = tmp_path / "a node"
    settings.RECORD = settings.RECORD | {"URL": str(place)}
    settings.REPORTS = settings.REPORTS | {"KEEP_CLASSES": False, "MASTER": "local[2]"}
    return place


def half_way(
    record: Path, run: ReportRun, act: Callable[[list[psutil.Process]], object]
) -> tuple[ReportRun, list[psutil.Process]]:
    """Run, and act once the run writes a table and has entered nothing; Spark's processes."""
    family: list[psutil.Process] = []
    seen_files: list[Path] = []
    reports = record.parent / "a node" / "reports"
    # The session that other tests share may be a child of this process as well.
    others = set(psutil.Process().children(recursive=True))

    def watch(seen: ReportRun) -> None:
        if family or not seen.step.startswith("rolling up"):
            return
        # Spark writes there first.
        until(lambda: list(record.glob("roll-up/runs/*/*/_temporary")), 60, every=0.02)
        assert not list(record.glob("roll-up/ledger/*.json"))
        seen_files.extend(reports.glob("*/temporary/*"))
        family.extend(set(psutil.Process().children(recursive=True)) - others)
        act(family)

    ended = report_runs.execute(run.pk, watch)
    assert ended is not None
    assert family, "the run was never seen half-way"
    assert {each.name.split("-")[0] for each in seen_files} >= {"artifacts", "blockmgr", "spark"}
    assert not list(reports.iterdir())
    return ended, family


def test_a_killed_spark_leaves_no_half_result_and_is_tried_again(record: Path) -> None:
    def kill_java(family: list[psutil.Process]) -> None:
        for each in family:
            with suppress(psutil.NoSuchProcess):  # a worker of Python's may have ended since
                if each.name() == "java":
                    each.kill()

    run = report_runs.queue(Kind.DAILY, DAY)
    ended, family = half_way(record, run, kill_java)
    assert (ended.state, ended.attempts) == ("queued", 1)
    assert ended.error
    assert not Report.objects.exists()
    assert not list(record.glob("roll-up/ledger/*.json"))
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []

    assert report_runs.sweep() == [run.pk]


def test_cancelling_ends_java_and_its_workers(record: Path) -> None:
    run = report_runs.queue(Kind.DAILY, DAY)
    ended, family = half_way(record, run, lambda _: report_runs.cancel(run))
    assert ended.state == "cancelled"
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert not Report.objects.exists()
    assert not list(record.glob("roll-up/ledger/*.json"))

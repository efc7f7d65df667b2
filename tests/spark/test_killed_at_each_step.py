"""A run that is killed at its steps, at one after the other: no row more or less, ever."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import job_main
from spark.jobs import compaction, tables
from spark.jobs import record as raw_files
from spark.jobs.periods import Kind
from spark.jobs.storage import Storage
from tests.length import length
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NEXT = DAY + timedelta(days=1)
HOUR = DAY + timedelta(hours=14)
IS_FULL = bool(length(0, full=1))
MOMENTS = ("before", "after") if IS_FULL else ("after",)
OF_A_ROLL_UP = {"write runs/hours", "replace ledger", "write runs/days", "replace days"}
OF_A_COMPACTION = {
    "rename to pending", "remove workplace", "replace decision", "rename to last name",
    "remove replaced", "replace ledger, of the compacted file",
}  # fmt: skip
"""What a run of a day does to the record: see rolling, tiers and compaction."""
STEPS = OF_A_ROLL_UP | (OF_A_COMPACTION if IS_FULL else {"replace decision"})
"""Where it is killed here: `test_two_runs` kills a compaction at each step, without Spark."""


class Killed(BaseException):
    """The process ends here: nothing of it that comes later is done."""


class Steps:
    """The steps of runs that follow one another: each is where a run is killed, once."""

    def __init__(self) -> None:
        self.killed_at: dict[tuple[str, str], None] = {}
        self.is_compacting = False
        self._is_killed = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._is_killed = self.is_compacting = False

    def take(self, step: str, act: Callable[[], Any]) -> Any:
        self._at("before", step)
        result = act()
        self._at("after", step)
        return result

    def _at(self, moment: str, step: str) -> None:
        with self._lock:
            is_due = moment in MOMENTS and step in STEPS and (moment, step) not in self.killed_at
            if is_due and not self._is_killed:
                self.killed_at[moment, step] = None
                self._is_killed = True
            if self._is_killed:
                raise Killed


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()
    write, replace, rename, remove = tables.write, Storage.replace, Storage.rename, Storage.remove

    def named(path: str) -> str:
        if "_compact-" in path:
            return "decision"
        return "ledger" if "/ledger/" in path else "days" if "/days/" in path else path

    def written(frame: Any, storage: Storage, folder: str) -> None:
        tier = "days" if re.search(r"-days-\d+/", folder) else "hours"
        found.take(f"write runs/{tier}", lambda: write(frame, storage, folder))

    def replaced(self: Storage, path: str, text: str) -> None:
        of = ", of the compacted file" if found.is_compacting and "/ledger/" in path else ""
        found.is_compacting |= "_compact-" in path
        found.take(f"replace {named(path)}{of}", lambda: replace(self, path, text))

    def renamed(self: Storage, path: str, to: str) -> None:
        if Path(path).name.startswith("_") and Path(path).suffix == ".tmp":
            return rename(self, path, to)  # a part of a replacement
        what = "pending" if to.endswith(".pending") else "last name"
        return found.take(f"rename to {what}", lambda: rename(self, path, to))

    def removed(self: Storage, path: str) -> None:
        what = "workplace" if "/_work-" in path else "replaced"
        found.take(f"remove {what}", lambda: remove(self, path))

    monkeypatch.setattr(tables, "write", written)
    monkeypatch.setattr(Storage, "replace", replaced)
    monkeypatch.setattr(Storage, "rename", renamed)
    monkeypatch.setattr(Storage, "remove", removed)
    return found


def fill(place: Path, seed: int) -> int:
    """As many files of one hour as are worth compacting; their rows."""
    rows = 0
    for number in range(compaction.FILES_WORTH_IT):
        files = RecordFiles(f"{place}/raw", f"w{number}", max_bytes=1 << 40, min_free=0)
        table = dict(hours(Plan(600, 1, seed + number, NEXT)))[HOUR]
        files.write(int(HOUR.timestamp()), table)
        rows += len(table)
    return rows


def files_there(place: Path) -> list[str]:
    return [file.path for file in raw_files.files_of(Storage(f"{place}/raw"), HOUR)]


def rows_there(place: Path) -> int:
    return sum(pq.ParquetFile(path).metadata.num_rows for path in files_there(place))


def make(spark: SparkSession, place: Path, run: str) -> Any:
    return job_main.make(spark, Kind.DAILY, str(place), DAY, NEXT, run)["reports"]


def test_a_run_killed_at_any_step_neither_loses_nor_doubles_a_row(
    spark: SparkSession, record: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = fill(record, 0)
    with monkeypatch.context() as patch:
        patch.setattr("spark.job_main.figures.of_period", lambda *_: {})  # which writes nothing
        for number in range(len(MOMENTS) * len(STEPS) + 1):
            steps.begin()
            try:
                make(spark, record, f"run-{number}")
                break
            except Killed:
                assert rows_there(record) == rows, list(steps.killed_at)[-1]
            if len(files_there(record)) < compaction.FILES_WORTH_IT:
                rows += fill(record, 100 * number)
        else:
            pytest.fail(f"there are more steps: {list(steps.killed_at)}")
    assert {step for _, step in steps.killed_at} == STEPS
    (report,) = make(spark, record, "whole")
    assert report["rows"] == rows
    truth = Independent(record, DAY, NEXT)
    assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
    names = [path.name for path in (record / "raw" / raw_files.folder_of(HOUR)).iterdir()]
    assert sorted(name.partition("-")[0] for name in names) == ["_compact", "compact"]

"""Damaged raw files: proved by reading each alone, set aside and named; the report goes on."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from msgnode.models import Alarm
from msgnode.traffic.columns import OF_SESSIONS, STORED
from msgnode.traffic.files import RecordFiles
from msgnode.traffic.generate import Plan, hours
from spark import job_main, report_runs
from spark.jobs import counting, rolling
from spark.jobs.ledger import Ledger
from spark.jobs.periods import Kind
from spark.jobs.storage import Storage
from tests.spark.conftest import DAY
from tests.spark.independent import Independent

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
NEXT = DAY + timedelta(days=1)
LOCAL = fs.LocalFileSystem()


def fill(record: Path, name: str, rows: int = 2_400, seed: int = 1) -> None:
    files = RecordFiles(f"{record}/raw", name, max_bytes=1 << 40, min_free=0)
    for hour, table in hours(Plan(rows, 1, seed, NEXT)):
        files.write(int(hour.timestamp()), table)


def files_of(record: Path, hour: datetime) -> list[Path]:
    return sorted(record.glob(f"raw/date={hour:%Y-%m-%d}/hour={hour:%H}/*.parquet"))


def spoil(path: Path, column: str) -> None:
    """Damage one column chunk: the footer and the other columns can be read."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(
        group.column(n) for n in range(group.num_columns)
        if group.column(n).path_in_schema == column
    )  # fmt: skip
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)
    assert pq.ParquetFile(path).metadata.num_rows


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "garbage": lambda path: path.write_bytes(b"no rows of anything " * 100),
    "empty": lambda path: path.write_bytes(b""),
    "wrong columns": lambda path: pq.write_table(pa.table({"price": [1.0]}), path),
    "wrong type": lambda path: pq.write_table(
        pq.read_table(path).drop_columns("size").append_column("size", pa.array(
            ["big"] * pq.ParquetFile(path).metadata.num_rows)), path,
    ),
    "column chunk": lambda path: spoil(path, "sender"),
}  # fmt: skip


@pytest.fixture
def one(record: Path) -> Path:
    fill(record, "w", rows=240)
    return files_of(record, DAY + timedelta(hours=14))[0]


def test_the_recorder_and_the_counting_agree_on_the_columns() -> None:
    plain = {
        name: kind.value_type if pa.types.is_dictionary(kind) else kind
        for name, kind in counting.RECORD.items()
    }
    stored = {field.name: field.type for field in (*STORED, *OF_SESSIONS)}
    assert plain.keys() == stored.keys()
    assert {**plain, "at": None} == {**stored, "at": None}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_has_a_fault_and_a_sound_one_has_none(one: Path, kind: str) -> None:
    assert rolling.fault_of(LOCAL, str(one)) == ""
    DAMAGE[kind](one)
    assert rolling.fault_of(LOCAL, str(one)) not in ("", rolling.GONE)


def test_a_file_that_an_older_node_wrote_without_a_column_is_sound(one: Path) -> None:
    pq.write_table(pq.read_table(one).drop_columns("rule"), one)
    assert rolling.fault_of(LOCAL, str(one)) == ""


def test_a_file_that_vanished_is_gone_and_not_damaged(tmp_path: Path) -> None:
    assert rolling.fault_of(LOCAL, str(tmp_path / "none.parquet")) == rolling.GONE


class Failing(io.BytesIO):
    """A sound file whose reads fail once the footer was read."""

    def __init__(self, content: bytes, error: Exception) -> None:
        super().__init__(content)
        self._error, self._left = error, 1

    def read(self, size: int | None = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().read(size)


class Opens:
    def __init__(self, opened: Callable[[], Any]) -> None:
        self._opened = opened

    def open_input_file(self, path: str) -> Any:
        return self._opened()


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "disk"), MemoryError("no room"), TimeoutError("late")], ids=repr
)
def test_an_error_while_reading_is_no_proof_of_damage(one: Path, error: Exception) -> None:
    content = one.read_bytes()
    with pytest.raises(type(error)):
        rolling.fault_of(Opens(lambda: Failing(content, error)), str(one))


def test_a_missing_permission_is_no_proof_of_damage(one: Path) -> None:
    def denied() -> Any:
        raise PermissionError(errno.EACCES, "not yours")

    with pytest.raises(PermissionError):
        rolling.fault_of(Opens(denied), str(one))


@pytest.mark.django_db
def test_an_alarm_names_the_files_once_until_there_are_more() -> None:
    file = {"hour": DAY.isoformat(), "file": "a.parquet", "fault": "no footer"}
    for _ in range(2):
        report_runs.raise_damaged([file, file])
    alarm = Alarm.objects.get(kind=report_runs.ALARM)
    assert (alarm.subject, alarm.count) == ("2026-11-19 00:00", 1)
    assert "a.parquet" in alarm.text
    Alarm.objects.update(cleared_at=DAY)
    report_runs.raise_damaged([file])
    assert not Alarm.objects.filter(cleared_at=None).exists()
    report_runs.raise_damaged([file, file | {"file": "b.parquet"}])
    assert "b.parquet" in Alarm.objects.get(cleared_at=None).text


def made(spark: SparkSession, record: Path, run: str, **how: Any) -> dict[str, Any]:
    return job_main.make(spark, Kind.DAILY, str(record), DAY, NEXT, run, **how)


def check(report: dict[str, Any], record: Path) -> None:
    """The figures are those of the rows that can be read."""
    truth = Independent(record, DAY, NEXT)
    assert report["totals"] == {"dropped": 0, "refused": 0} | truth.totals()
    by_type = {(row["type"],): row["messages"] for row in report["tables"]["types"]}
    assert by_type == truth.counts("type")
    by_hour = {(row["hour"][11:13],): row["messages"] for row in report["tables"]["hours"]}
    assert by_hour == truth.counts("strftime(\"at\", '%H')")
    assert report["latency"]["highest_us"] == truth.highest()


@pytest.mark.long
def test_a_report_is_made_of_what_can_be_read_and_names_the_rest(
    spark: SparkSession, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(record, "a")
    fill(record, "b", seed=2)
    damaged: dict[str, Path] = {}
    for number, kind in enumerate(DAMAGE, 8):
        damaged[kind] = files_of(record, DAY + timedelta(hours=number))[0]
        DAMAGE[kind](damaged[kind])
    alone = DAY + timedelta(hours=15)
    for path in files_of(record, alone):  # an hour of which nothing is left
        damaged[path.name] = path
        path.write_bytes(b"")
    vanishes = files_of(record, DAY + timedelta(hours=16))[1]

    def watch(share: float, step: str) -> None:
        if step.startswith("rolling up"):
            vanishes.unlink(missing_ok=True)

    result = made(spark, record, "one", progress=watch)
    (report,) = result["reports"]
    assert not any(path.exists() for path in damaged.values())
    assert all(path.with_name(f"{path.name}.damaged").exists() for path in damaged.values())
    assert len(list(record.glob("raw/*/*/*.damaged"))) == len(damaged)
    check(report, record)
    names = sorted([path.name for path in damaged.values()] + [vanishes.name])
    assert sorted(row["file"] for row in result["damaged"]) == names
    assert report["tables"]["damaged_files"] == result["damaged"]
    hours_incomplete = {DAY + timedelta(hours=n) for n in (8, 9, 10, 11, 12, 13, 15, 16)}
    assert {datetime.fromisoformat(h) for h in report["hours_incomplete"]} == hours_incomplete
    assert alone.isoformat() not in report["hours_recorded"]

    # Late rows for such hours: the marks stay, and nothing is found anew.
    fill(record, "late", seed=3)
    monkeypatch.setattr("spark.job_main.figures.of_period", lambda *_: {})
    assert made(spark, record, "two")["damaged"] == []
    late = Ledger(Storage(f"{record}/roll-up")).entries(DAY, NEXT)
    assert {hour for hour, entry in late.items() if entry.lost} == hours_incomplete
    rows = Independent(record, DAY, NEXT).totals()["messages"]
    assert sum(entry.rows for entry in late.values()) == rows


@pytest.mark.long
def test_hours_of_which_files_were_not_restored_are_incomplete_until_they_are_there(
    spark: SparkSession, record: Path, tmp_path: Path
) -> None:
    fill(record, "a")
    fill(record, "b", seed=2)
    part, whole = DAY + timedelta(hours=8), DAY + timedelta(hours=9)
    away = [files_of(record, part)[0], *files_of(record, whole)]
    for number, path in enumerate(away):
        path.rename(tmp_path / f"{number}")
        listed = path.with_name("_missing.json")
        listed.write_text(json.dumps([each.name for each in away if each.parent == path.parent]))
    (report,) = made(spark, record, "one")["reports"]
    check(report, record)
    assert report["hours_incomplete"] == [part.isoformat(), whole.isoformat()]
    assert part.isoformat() in report["hours_recorded"]
    assert whole.isoformat() not in report["hours_recorded"]
    told = {(row["file"], row["fault"]) for row in report["tables"]["damaged_files"]}
    assert told == {(path.name, rolling.MISSING) for path in away}
    assert made(spark, record, "two")["hours_rolled"] == 0
    for number, path in enumerate(away):
        (tmp_path / f"{number}").rename(path)
    (report,) = made(spark, record, "three")["reports"]
    check(report, record)
    assert report["hours_incomplete"] == []

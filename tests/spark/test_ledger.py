"""The ledger: what it says when its files are damaged, of another version, or rows came late."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from msgnode.models import Alarm
from spark import report_runs
from spark.jobs import record, rolling
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.storage import MISSING_LIST, File, Storage

HOUR = datetime(2026, 11, 21, 13, tzinfo=UTC)
BEFORE = Entry("first", record.fingerprint([]), 100, "2026-11-21T14:05:00+00:00")
NOW = "2026-11-21T16:05:00+00:00"


@pytest.mark.parametrize("text", ["", '{"13": {"run": "first", ', "[]", '{"13": 7}', '{"13": {}}'])
def test_a_file_that_cannot_be_read_is_set_aside_and_its_hours_are_entered_anew(
    tmp_path: Path, text: str
) -> None:
    Ledger(Storage(str(tmp_path))).enter({HOUR: BEFORE, HOUR + timedelta(days=1): BEFORE})
    file = tmp_path / "ledger" / "2026-11-21.json"
    file.write_text(text)
    book = Ledger(Storage(str(tmp_path)))
    assert list(book.entries(HOUR, HOUR + timedelta(days=2))) == [HOUR + timedelta(days=1)]
    book.enter({HOUR: BEFORE})
    assert Ledger(Storage(str(tmp_path))).entry(HOUR) == BEFORE
    assert book.damaged_files() == ["ledger/2026-11-21.json"]
    assert file.with_name("2026-11-21.json.damaged").read_text() == text


def test_what_a_later_version_says_besides_is_passed_over(tmp_path: Path) -> None:
    book = Ledger(Storage(str(tmp_path)))
    book.enter({HOUR: BEFORE})
    file = tmp_path / "ledger" / "2026-11-21.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps({"13": said["13"] | {"owner": "somebody"}}))
    assert Ledger(Storage(str(tmp_path))).entry(HOUR) == BEFORE


@pytest.mark.django_db
def test_an_alarm_names_a_ledger_that_was_damaged_once() -> None:
    for _ in range(2):
        report_runs.raise_ledgers(["ledger/2026-11-21.json"])
    alarm = Alarm.objects.get(kind=report_runs.ALARM)
    assert (alarm.subject, alarm.count) == ("ledger/2026-11-21.json", 1)


def test_late_rows_do_not_take_the_place_of_those_that_retention_has_deleted() -> None:
    late = [File("/r/late.parquet", "late.parquet", 9, False)]
    entry = rolling.entry_of(BEFORE, late, 3, {}, "second", NOW)
    assert (entry.run, entry.rows, entry.lost) == ("first", 100, {"late.parquet": rolling.LATE})
    assert entry.inputs == record.fingerprint(late)


def test_late_rows_beside_the_others_are_counted() -> None:
    files = [File(f"/r/{n}.parquet", f"{n}.parquet", 9, False) for n in "ab"]
    entry = rolling.entry_of(BEFORE, files, 103, {}, "second", NOW)
    assert entry == Entry("second", record.fingerprint(files), 103, NOW)


def test_an_hour_of_which_a_file_is_damaged_is_what_can_be_read() -> None:
    files = [File("/r/a.parquet", "a.parquet", 9, False)]
    entry = rolling.entry_of(BEFORE, files, 60, {"b.parquet": "no footer"}, "second", NOW)
    assert (entry.run, entry.rows, entry.lost) == ("second", 60, {"b.parquet": "no footer"})
    gone = rolling.entry_of(BEFORE, files, 60, {"b.parquet": rolling.GONE}, "second", NOW)
    assert (gone.run, gone.rows) == ("first", 100)


def test_an_hour_whose_damage_was_found_after_it_was_counted_is_what_can_be_read() -> None:
    files = [File("/r/a.parquet", "a.parquet", 9, False)]
    found = replace(BEFORE, lost={"b.parquet": "no column"})  # by compaction, which reads more
    entry = rolling.entry_of(found, files, 60, {}, "second", NOW)
    assert (entry.run, entry.rows, entry.lost) == ("second", 60, {"b.parquet": "no column"})


def test_a_folder_that_is_no_hour_is_passed_over(tmp_path: Path) -> None:
    for name in (
        "date=2026-11-21/hour=13",
        "date=2026-11-21/hour=13.old",
        "date=2026-11-21.old",
        "date=2026-02-30/hour=01",
        "date=2026-11-21/hour=24",
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.parquet").write_text("rows")
    found = record.recorded_hours(
        Storage(str(tmp_path)), HOUR - timedelta(days=400), HOUR + timedelta(hours=1)
    )
    assert list(found) == [HOUR]


def test_an_entry_is_changed_only_while_it_stands_for_the_same_files(tmp_path: Path) -> None:
    """Another run may have rolled the hour up since it was looked at."""
    one, other = (Ledger(Storage(str(tmp_path))) for _ in range(2))
    one.enter({HOUR: Entry("first", "files", 5, "t")})
    assert other.entry(HOUR) is not None
    one.enter({HOUR: Entry("second", "more files", 6, "t")})
    other.change(HOUR, "files", inputs="compacted")
    assert one.entry(HOUR) == Ledger(Storage(str(tmp_path))).entry(HOUR)
    other.change(HOUR, "more files", inputs="compacted")
    assert Ledger(Storage(str(tmp_path))).entry(HOUR) == Entry("second", "compacted", 6, "t")


def test_an_hour_of_a_restored_node_that_was_counted_before_keeps_its_count() -> None:
    files = [File("/r/a.parquet", "a.parquet", 9, False)]
    missing = {"b.parquet": rolling.MISSING}
    entry = rolling.entry_of(BEFORE, files, 60, missing, "second", NOW)
    assert (entry.run, entry.rows, entry.lost) == ("first", 100, {})
    assert entry.inputs == record.fingerprint(files)
    known = rolling.entry_of(None, files, 60, missing, "second", NOW)
    assert (known.rows, known.lost) == (60, missing)
    both = [*files, File("/r/b.parquet", "b.parquet", 9, False)]
    assert rolling.entry_of(known, both, 100, {}, "third", NOW).lost == {}


def test_files_that_are_missing_are_those_of_the_list_that_nothing_stands_for(
    tmp_path: Path,
) -> None:
    storage = Storage(str(tmp_path))
    folder = tmp_path / record.folder_of(HOUR)
    assert record.missing_of(storage, HOUR) == []
    named = ["a.parquet", "b.parquet", "c.parquet"]
    storage.replace(f"{folder}/{MISSING_LIST}", json.dumps([*named, "_x.json", 7]))
    book = Ledger(Storage(str(tmp_path / "roll-up")))
    assert record.missing_of(storage, HOUR) == named
    assert rolling.stale_hours(storage, book, HOUR, HOUR + timedelta(hours=1)) == {HOUR: []}
    (folder / "a.parquet").write_bytes(b"rows")
    assert record.missing_of(storage, HOUR) == named[1:]
    (folder / "compact-1.parquet").write_bytes(b"rows")
    (folder / "_compact-1.json").write_text('["b.parquet"]')
    assert record.missing_of(storage, HOUR) == ["c.parquet"]
    (folder / MISSING_LIST).write_text("{")
    assert record.missing_of(storage, HOUR) == []

"""Two runs at the same record: what one has compacted is not missing for the other."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from spark.jobs import compaction, damage, record, rolling
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.storage import Storage
from tests.spark.conftest import DAY

HOUR = DAY + timedelta(hours=3)


def folder_with(place: Path, *names: str) -> Path:
    folder = place / record.folder_of(HOUR)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("rows")
    return folder


def without(place: Path, names: list[str], gone: list[str]) -> tuple[list[str], dict[str, str]]:
    raw = Storage(str(place))
    files = record.files_of(raw, HOUR)
    for name in gone:
        (place / record.folder_of(HOUR) / name).unlink()
    folder_with(place, *names)
    faults: dict[str, str] = {}
    left = rolling._without(raw, HOUR, files, dict.fromkeys(gone, damage.GONE), faults)
    return [file.name for file in left], faults


def test_rows_that_another_run_has_compacted_are_read_there(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.parquet", "b.parquet")
    found = without(tmp_path, ["compact-1.parquet"], ["a.parquet", "b.parquet"])
    assert found == (["compact-1.parquet"], {})


def test_a_file_that_is_gone_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.parquet", "b.parquet", "compact-0.parquet")
    found = without(tmp_path, [], ["a.parquet"])
    assert found == (["b.parquet", "compact-0.parquet"], {"a.parquet": damage.GONE})


def test_both_decide_alike_and_a_file_that_both_moved_is_no_failure(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "a.parquet", "compact-1.pending")
    (folder / "_compact-1.json").write_text(json.dumps(["a.parquet"]))

    class Faster(Storage):
        """Another run settles in front of us, at each step."""

        def rename(self, path: str, to: str) -> None:
            compaction.settle(Storage(str(tmp_path)), HOUR)
            super().rename(path, to)

        def remove(self, path: str) -> None:
            if path.endswith("a.parquet"):
                Path(path).unlink()
            super().remove(path)

    compaction.settle(Faster(str(tmp_path)), HOUR)
    assert [path.name for path in folder.iterdir()] == ["compact-1.parquet"]


def test_what_two_runs_enter_in_one_file_of_the_ledger_stands_side_by_side(tmp_path: Path) -> None:
    one, other = (Ledger(Storage(str(tmp_path))) for _ in range(2))
    entries = {HOUR + timedelta(hours=n): Entry(f"r{n}", "i", n, "t") for n in range(3)}
    assert one.entries(DAY, DAY + timedelta(days=1)) == {}
    for book, hour in zip((one, other, one), entries, strict=True):
        book.enter({hour: entries[hour]})
    assert Ledger(Storage(str(tmp_path))).entries(DAY, DAY + timedelta(days=1)) == entries

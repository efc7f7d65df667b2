"""What tasks do to put tables into an object store, on a disk: whole files, or none that counts."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.jobs import record, tables
from spark.jobs.ledger import Ledger
from spark.jobs.storage import File, Storage
from tests.spark.conftest import DAY

SCHEMA = pa.schema([("run", pa.string()), ("messages", pa.int64())])
ROWS = pa.table({"run": ["a", "b"], "messages": [1, 2]}, schema=SCHEMA)


def written(folder: Path, rows: pa.Table) -> list[str]:
    made = tables._writer(str(folder))(iter(rows.to_batches()))
    return [path for batch in made for path in batch["written"].to_pylist()]


def read(paths: list[str], schema: pa.Schema) -> pa.Table:
    listed = pa.RecordBatch.from_pydict({"path": paths})
    return pa.Table.from_batches(tables._reader(schema)(iter([listed])), schema)


def test_what_a_task_writes_is_read_again(tmp_path: Path) -> None:
    (name,) = written(tmp_path, ROWS)
    assert read([str(tmp_path / name)], SCHEMA) == ROWS


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(tmp_path, ROWS.slice(0, 0)) == []
    assert list(tmp_path.iterdir()) == []


def test_what_failed_attempts_leave_is_not_named(tmp_path: Path) -> None:
    def breaks() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise OSError("gone")

    named = []
    with pytest.raises(OSError, match="gone"):
        named.extend(tables._writer(str(tmp_path))(breaks()))
    assert named == []


def test_a_column_that_an_older_table_lacks_is_null(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in written(tmp_path, ROWS)]
    wider = SCHEMA.append(pa.field("to_service", pa.string()))
    assert read(paths, wider)["to_service"].to_pylist() == [None, None]


def test_several_files_become_one_with_all_rows(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for path in paths:
        pq.write_table(ROWS, path)
    joined = tables._joiner(str(tmp_path / "one"))
    (said,) = joined(iter([pa.RecordBatch.from_pydict({"paths": [paths]})]))
    (row,) = said.to_pylist()
    assert (row["before"], row["after"]) == (6, 6)
    assert pq.read_table(row["path"]).num_rows == 6


def test_a_compacted_object_that_stands_under_two_names_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / record.folder_of(DAY)
    folder.mkdir(parents=True)
    for name in ("compact-x.pending", "compact-x.parquet", "w-1.parquet"):
        pq.write_table(ROWS, folder / name)
    (folder / "_compact-x.json").write_text('["w-1.parquet"]')
    found: list[File] = record.files_of(Storage(str(tmp_path)), DAY)
    assert [file.name for file in found] == ["compact-x.pending"]


def test_files_of_one_hour_need_not_have_the_same_columns(tmp_path: Path) -> None:
    wider = ROWS.append_column("event", pa.array(["opened", None]))
    for name, rows in (("a", ROWS), ("b", wider), ("c", ROWS)):
        pq.write_table(rows, tmp_path / name)
    paths = [str(tmp_path / name) for name in "abc"]
    joined = tables._joiner(str(tmp_path / "one"))
    (said,) = joined(iter([pa.RecordBatch.from_pydict({"paths": [paths]})]))
    (row,) = said.to_pylist()
    assert (row["before"], row["after"]) == (6, 6)
    assert pq.read_table(row["path"])["event"].to_pylist() == [
        None, None, "opened", None, None, None,
    ]  # fmt: skip


def test_what_cannot_be_joined_takes_no_other_attempts_place(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a")
    paths = [str(tmp_path / name) for name in ("a", "gone")]
    with pytest.raises(FileNotFoundError):
        list(tables._joiner(str(tmp_path / "one"))(
            iter([pa.RecordBatch.from_pydict({"paths": [paths]})])
        ))  # fmt: skip
    assert not (tmp_path / "one").exists()


def test_what_a_run_wrote_before_it_failed_takes_no_room(tmp_path: Path) -> None:
    """As on a disk that is full, where each attempt would leave its part for a day."""
    storage = Storage(str(tmp_path))
    book = Ledger(storage)

    def fills(*_: object) -> None:
        pq.write_table(ROWS, tmp_path / "runs/one/traffic/part.parquet")
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "runs/one/traffic").mkdir(parents=True)
    with pytest.raises(OSError, match="No space"):  # noqa: SIM117 (what fails is in the body)
        with tables.thrown_away_if_it_fails(storage, book.folder_of("one")):
            fills()
    assert list((tmp_path / "runs").iterdir()) == []

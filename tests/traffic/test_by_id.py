"""What the traffic record tells of one message: some rows of many, of one peer, and never half."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgnode.traffic import by_id
from msgnode.traffic.files import folder_of

NOW = datetime(2026, 11, 26, 12, 30, tzinfo=UTC)
PEER = "b.example"


def keep(record: Path, hour: int, *messages: tuple[str, str, int]) -> Path:
    """A file of an hour: id, recipient and the second of each message."""
    at = datetime(2026, 11, 26, hour, tzinfo=UTC)
    folder = record / folder_of(int(at.timestamp()))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{len(list(folder.iterdir()))}.parquet"
    rows = [
        {
            "at": at.replace(minute=second // 60, second=second % 60), "id": id_, "type": "read",
            "sender": "hyperty://a.example/x", "to": to, "outcome": "delivered", "code": None,
        }
        for id_, to, second in messages
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def found(record: Path, hours: int = 2, most: int = 100) -> list[by_id.Row]:
    def is_of_peer(sender: str, to: str) -> bool:
        return to.startswith(f"hyperty://{PEER}/")

    return by_id.rows(record.as_uri(), ["1", '"1"'], PEER, is_of_peer, NOW, hours, most)


def test_messages_of_an_id_to_a_peer_are_found_in_the_last_hours(tmp_path: Path) -> None:
    keep(tmp_path, 12, ("1", f"hyperty://{PEER}/one", 3), ("2", f"hyperty://{PEER}/one", 4))
    keep(tmp_path, 12, ('"1"', f"hyperty://{PEER}/two", 1), ("1", "hyperty://c.example/one", 2))
    keep(tmp_path, 11, ("1", f"hyperty://{PEER}/three", 9), ("1", f"hyperty://x.{PEER}/one", 9))
    keep(tmp_path, 10, ("1", f"hyperty://{PEER}/earlier", 9))
    assert [row.to.rpartition("/")[2] for row in found(tmp_path)] == ["three", "two", "one"]
    assert [row.to.rpartition("/")[2] for row in found(tmp_path, most=1)] == ["one"]


def test_of_an_id_in_many_messages_so_many_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_id, "MOST_READ", 10)
    keep(tmp_path, 12, *(("1", f"hyperty://{PEER}/now", second) for second in range(8)))
    keep(tmp_path, 11, *(("1", f"hyperty://{PEER}/before", second) for second in range(8)))
    tos = [row.to.rpartition("/")[2] for row in found(tmp_path)]
    assert tos == ["before"] * 2 + ["now"] * 8


def test_what_concerns_others_does_not_count_among_those_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_id, "MOST_READ", 10)
    keep(tmp_path, 12, *(("1", "hyperty://c.example/one", second) for second in range(50)))
    keep(tmp_path, 11, ("1", f"hyperty://{PEER}/one", 1))
    assert len(found(tmp_path)) == 1


def test_a_file_that_cannot_be_read_is_said_not_passed_over(tmp_path: Path) -> None:
    file = keep(tmp_path, 12, ("1", f"hyperty://{PEER}/one", 3))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(OSError, match="parquet|Parquet"):
        found(tmp_path)


def test_an_hour_whose_files_are_replaced_meanwhile_is_read_anew_and_each_row_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = keep(tmp_path, 12, ("1", f"hyperty://{PEER}/one", 1))
    second = keep(tmp_path, 12, ("1", f"hyperty://{PEER}/two", 2))
    listed = by_id.files_below

    def listed_then_replaced(system: Any, folder: str) -> Iterator[Any]:
        for number, file in enumerate(list(listed(system, folder))):
            if number and second.exists():
                both = pa.concat_tables([pq.read_table(first), pq.read_table(second)])
                pq.write_table(both, first.with_name("whole.parquet"))
                first.unlink()
                second.unlink()
            yield file

    monkeypatch.setattr(by_id, "files_below", listed_then_replaced)
    assert [row.to.rpartition("/")[2] for row in found(tmp_path)] == ["one", "two"]


def test_a_file_that_is_listed_and_never_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, 12, ("1", f"hyperty://{PEER}/one", 1))
    listed = by_id.files_below

    def gone_once_listed(system: Any, folder: str) -> list[Any]:
        files = list(listed(system, folder))
        for file in files:
            Path(file.path).unlink()
            keep(tmp_path, 12, ("1", f"hyperty://{PEER}/one", 1))
            Path(file.path).rename(f"{file.path}.other.parquet")
        return files

    monkeypatch.setattr(by_id, "files_below", gone_once_listed)
    with pytest.raises(FileNotFoundError):
        found(tmp_path)

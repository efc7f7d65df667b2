"""Two runs at the same record: what one has compacted is not missing for the other."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark.jobs import compaction, record, rolling
from spark.jobs.ledger import Entry, Ledger
from spark.jobs.storage import File, Storage
from tests.spark.conftest import DAY

HOUR = DAY + timedelta(hours=3)


def folder_with(place: Path, *names: str) -> Path:
    folder = place / record.folder_of(HOUR)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("rows")
    return folder


def files_in(folder: Path) -> list[str]:
    """All but the decisions, which stay with what they speak for."""
    names = {path.name for path in folder.iterdir()}
    decided = set(filter(record.is_decision, names))
    made = {record.settled_of(record.pending_of(name)) for name in decided}
    assert made <= names
    return sorted(names - decided)


def without(place: Path, names: list[str], gone: list[str]) -> tuple[list[str], dict[str, str]]:
    raw = Storage(str(place))
    files = record.files_of(raw, HOUR)
    for name in gone:
        (place / record.folder_of(HOUR) / name).unlink()
    folder_with(place, *names)
    faults: dict[str, str] = {}
    left = rolling._without(raw, HOUR, files, dict.fromkeys(gone, rolling.GONE), faults)
    return [file.name for file in left], faults


def test_rows_that_another_run_has_compacted_are_read_there(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.parquet", "b.parquet")
    found = without(tmp_path, ["compact-1.parquet"], ["a.parquet", "b.parquet"])
    assert found == (["compact-1.parquet"], {})


def test_a_file_that_is_gone_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder_with(tmp_path, "a.parquet", "b.parquet", "compact-0.parquet")
    found = without(tmp_path, [], ["a.parquet"])
    assert found == (["b.parquet", "compact-0.parquet"], {"a.parquet": rolling.GONE})


@pytest.mark.parametrize("text", ["", '["a.par', "7", "\x00"])
def test_a_decision_that_cannot_be_read_ends_no_run(tmp_path: Path, text: str) -> None:
    """What is not settled yet is made of what is there; what is, stands beside late rows."""
    raw = Storage(str(tmp_path))
    folder = folder_with(tmp_path, "a.parquet", "b.parquet", "compact-1.pending")
    (folder / "_compact-1.json").write_text(text)
    assert [file.name for file in record.files_of(raw, HOUR)] == ["a.parquet", "b.parquet"]
    compaction.settle(raw, HOUR)
    assert not (folder / "compact-1.pending").exists()
    (folder / "_compact-1.json").unlink()
    folder_with(tmp_path, "compact-2.parquet")
    (folder / "_compact-2.json").write_text(text)
    names = ["a.parquet", "b.parquet", "compact-2.parquet"]
    assert [file.name for file in record.files_of(raw, HOUR)] == names
    compaction.settle(raw, HOUR)
    assert files_in(folder) == names


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
                Path(path).unlink(missing_ok=True)
            super().remove(path)

    compaction.settle(Faster(str(tmp_path)), HOUR)
    assert files_in(folder) == ["compact-1.parquet"]


def test_what_two_runs_enter_in_one_file_of_the_ledger_stands_side_by_side(tmp_path: Path) -> None:
    one, other = (Ledger(Storage(str(tmp_path))) for _ in range(2))
    entries = {HOUR + timedelta(hours=n): Entry(f"r{n}", "i", n, "t") for n in range(3)}
    assert one.entries(DAY, DAY + timedelta(days=1)) == {}
    for book, hour in zip((one, other, one), entries, strict=True):
        book.enter({hour: entries[hour]})
    assert Ledger(Storage(str(tmp_path))).entries(DAY, DAY + timedelta(days=1)) == entries


ROWS = [f"{number}.parquet" for number in range(compaction.FILES_WORTH_IT)]


def join(_: Any, storage: Storage, files: Sequence[File], pending: str, workplace: str) -> None:
    """One file of several, as a run without Spark would make it; what fails leaves a part."""
    made = Path(f"{workplace}-0")
    texts = []
    try:
        for file in files:
            if not storage.exists(file.path):
                raise FileNotFoundError(file.path)
            texts.append(Path(file.path).read_text())
    finally:
        made.write_text("\n".join(texts))  # an object is there once it is closed
    storage.rename(str(made), pending)


class Interrupted(Storage):
    """Lets something else happen before one of its steps."""

    def __init__(self, root: str, step: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self.steps = 0
        self.step = step
        self.meanwhile = meanwhile

    def _before(self) -> None:
        self.steps += 1
        if self.steps == self.step:
            self.meanwhile()

    def files(self, folder: str, *, all_below: bool = False) -> list[File]:
        self._before()
        return super().files(folder, all_below=all_below)

    def exists(self, path: str) -> bool:
        self._before()
        return super().exists(path)

    def replace(self, path: str, text: str) -> None:
        self._before()
        super().replace(path, text)

    def rename(self, path: str, to: str) -> None:
        self._before()
        super().rename(path, to)

    def remove(self, path: str) -> None:
        self._before()
        super().remove(path)


def rows(place: Path) -> list[str]:
    files = record.files_of(Storage(str(place)), HOUR)
    return sorted(row for file in files for row in Path(file.path).read_text().split("\n"))


def hour_of(place: Path) -> Path:
    folder = place / record.folder_of(HOUR)
    folder.mkdir(parents=True)
    for name in ROWS:
        (folder / name).write_text(f"row {name}")
    return folder


def compact(storage: Storage, run: str) -> None:
    """One run's compaction; a step of another run may make it fail, and it is not done then."""
    files = record.files_of(storage, HOUR)
    with suppress(OSError):
        compaction.compact(None, storage, HOUR, files, run)  # type: ignore[arg-type]


class Killed(Exception):
    """The process ends here."""


class KilledOnceDecided(Storage):
    """Its process ends right after its decision."""

    def replace(self, path: str, text: str) -> None:
        super().replace(path, text)
        raise Killed


@pytest.mark.parametrize(
    "other", ["compacts", "settles", "is killed", "compacts more", "decides on more and is killed"]
)
def test_no_row_is_lost_or_doubled_at_whatever_step_another_run_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(compaction, "_write", join)

    for step in range(1, 60):
        place = tmp_path / f"{step}"
        folder = hour_of(place)
        expected = [f"row {name}" for name in ROWS]

        def meanwhile(place: Path = place, expected: list[str] = expected) -> None:
            assert rows(place) == expected
            if other == "is killed":
                raise Killed
            if "more" in other:
                folder_with(place, "late.parquet")
                expected.append("rows")
            if other == "settles":
                compaction.settle(Storage(str(place)), HOUR)
            elif other == "decides on more and is killed":
                with suppress(Killed):
                    compact(KilledOnceDecided(str(place)), "b")
            else:
                compact(Storage(str(place)), "b")
            assert rows(place) == expected

        storage = Interrupted(str(place), step, meanwhile)
        with suppress(Killed):
            compact(storage, "a")
        assert rows(place) == expected, step
        if other == "compacts":
            (one,) = files_in(folder)
            assert one.startswith("compact-")
        compaction.settle(Storage(str(place)), HOUR)
        assert rows(place) == expected, step
        assert all(each.endswith(".parquet") for each in files_in(folder))
        if storage.steps < step:
            break
    else:
        pytest.fail("a compaction has fewer steps")
    assert step > 10


def test_what_a_run_of_the_release_before_has_decided_on_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes what it replaces before the new file has its last name."""
    monkeypatch.setattr(compaction, "_write", join)
    folder = hour_of(tmp_path)

    def decides() -> None:
        (made,) = folder.glob("*.pending")
        (folder / record.decision_of(made.name)).write_text(json.dumps(ROWS))
        (folder / ROWS[0]).unlink()

    class Older(Storage):
        """Another run decides as soon as the new file is there."""

        def rename(self, path: str, to: str) -> None:
            super().rename(path, to)
            decides()

    compact(Older(str(tmp_path)), "a")
    assert rows(tmp_path) == [f"row {name}" for name in ROWS]
    compaction.settle(Storage(str(tmp_path)), HOUR)
    assert rows(tmp_path) == [f"row {name}" for name in ROWS]
    assert len(files_in(folder)) == 1


def test_a_compacted_file_that_is_there_again_counts_no_more_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an object store carries out a write hours after it was asked."""
    monkeypatch.setattr(compaction, "_write", join)
    folder = hour_of(tmp_path)
    raw, book = Storage(str(tmp_path)), Ledger(Storage(f"{tmp_path}/roll-up"))
    expected = [f"row {name}" for name in ROWS]
    compact(raw, "a")

    def appears_again() -> None:
        (folder / ROWS[0]).write_text(f"row {ROWS[0]}")
        files = record.files_of(raw, HOUR)
        assert rows(tmp_path) == sorted(expected)
        book.enter({HOUR: Entry("r", record.fingerprint(files), 1, "t")})
        assert rolling.stale_hours(raw, book, DAY, DAY + timedelta(days=1)) == {}
        rolling.compact(None, raw, book, DAY, DAY + timedelta(days=1), "b")  # type: ignore[arg-type]
        assert ROWS[0] not in files_in(folder)
        assert rows(tmp_path) == sorted(expected)

    appears_again()
    for number in range(compaction.FILES_WORTH_IT):
        (folder / f"late-{number}.parquet").write_text(f"row late {number}")
        expected.append(f"row late {number}")
    compact(raw, "c")  # what is compacted again still stands for all that it was made of
    assert len(files_in(folder)) == 1
    assert len(list(folder.iterdir())) == 2
    appears_again()


def test_what_keeps_an_hour_from_being_compacted_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compaction, "_write", full)
    monkeypatch.setattr(rolling, "faults_in", lambda *_: {})
    folder = hour_of(tmp_path)
    raw, book = Storage(str(tmp_path)), Ledger(Storage(f"{tmp_path}/roll-up"))
    inputs = record.fingerprint(record.files_of(raw, HOUR))
    book.enter({HOUR: Entry("r", inputs, 8, "t")})
    made = rolling.compact(None, raw, book, DAY, DAY + timedelta(days=1), "a")  # type: ignore[arg-type]
    assert made.hours == 0
    assert "No space left" in made.fault
    assert files_in(folder) == sorted(ROWS)
    monkeypatch.setattr(compaction, "_write", join)
    made = rolling.compact(None, raw, book, DAY, DAY + timedelta(days=1), "b")  # type: ignore[arg-type]
    assert made == (1, "")

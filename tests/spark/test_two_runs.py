"""Two runs at the same record: what one has compacted is not missing for the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spark.jobs import compaction, damage, record, rolling
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


@pytest.mark.parametrize("other", ["compacts", "settles", "is killed"])
def test_no_row_is_lost_or_doubled_at_whatever_step_another_run_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(compaction, "_write", join)
    expected = [f"row {name}" for name in ROWS]

    class Killed(Exception):
        """The process ends here."""

    for step in range(1, 60):
        place = tmp_path / f"{step}"
        folder = hour_of(place)

        def meanwhile(place: Path = place) -> None:
            assert rows(place) == expected
            if other == "is killed":
                raise Killed
            if other == "settles":
                compaction.settle(Storage(str(place)), HOUR)
            else:
                compact(Storage(str(place)), "b")
            assert rows(place) == expected

        storage = Interrupted(str(place), step, meanwhile)
        with suppress(Killed):
            compact(storage, "a")
        assert rows(place) == expected, step
        if other == "compacts":
            (one,) = folder.iterdir()
            assert one.name.startswith("compact-")
        compaction.settle(Storage(str(place)), HOUR)
        assert rows(place) == expected, step
        assert all(each.name.endswith(".parquet") for each in folder.iterdir())
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
    assert len(list(folder.iterdir())) == 1

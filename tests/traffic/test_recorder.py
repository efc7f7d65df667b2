"""The recorder: what is noted is written, late rows lie in their hour, and losses are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as pq
import pytest

from msgnode.core.record import Outcome, TrafficRecord
from msgnode.traffic import files
from msgnode.traffic.columns import STORED
from msgnode.traffic.files import RecordFiles, RecordFull, folder_of
from msgnode.traffic.pseudonyms import pseudonym
from msgnode.traffic.recorder import ALARM, ParquetRecorder, RecordOptions
from tests import waiting
from tests.waiting import until

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
Make = Callable[..., ParquetRecorder]


def row(number: int = 0, at: float = NOON, **more: object) -> TrafficRecord:
    given = {
        "at": at, "session": "s1", "id": str(number), "type": "message", "sender": "hyperty://a/1",
        "to": "hyperty://b/2", "size": 300, "listeners": 1, "outcome": Outcome.DELIVERED,
        "latency": 0.000_042, "runtime": "runtime://a/r",
    }  # fmt: skip
    return TrafficRecord(**(given | more))  # type: ignore[arg-type]


def stored(place: Path) -> pa.Table:
    files = [str(path) for path in place.rglob("*.parquet")]
    return pa.concat_tables([dataset.dataset(file).to_table() for file in sorted(files)])


@pytest.fixture
def alarms() -> list[tuple[str, ...]]:
    return []


@pytest.fixture
def make(tmp_path: Path, alarms: list[tuple[str, ...]]) -> Make:
    def made(**options: object) -> ParquetRecorder:
        return ParquetRecorder(
            RecordOptions(**({"url": str(tmp_path), "min_free": 0} | options)),  # type: ignore[arg-type]
            node="example.com",
            worker="host:12",
            raise_alarm=lambda *alarm: alarms.append(alarm),
            clear_alarm=lambda *alarm: alarms.append(("clear", *alarm)),
        )

    return made


def test_what_is_noted_is_written_with_all_its_columns(make: Make, tmp_path: Path) -> None:
    recorder = make()
    for number in range(600):
        recorder.note(row(number))
    recorder.flush()
    (file,) = tmp_path.rglob("*.*")
    assert file.parent == tmp_path / "date=2026-11-20" / "hour=12"
    table = dataset.dataset(str(file)).to_table()
    assert table.schema.names == STORED.names
    assert table["id"].to_pylist() == [str(number) for number in range(600)]
    assert table.slice(0, 1).to_pylist()[0] == {
        "at": datetime.fromtimestamp(NOON, UTC), "node": "example.com", "worker": "host:12",
        "session": "s1", "runtime": "runtime://a/r", "id": "0", "type": "message",
        "sender": "hyperty://a/1", "to": "hyperty://b/2", "size": 300, "listeners": 1,
        "outcome": "delivered", "component": "", "code": 0, "effect": "notApplicable",
        "rule": "", "asserted": False, "latency_us": 42,
    }  # fmt: skip
    assert (recorder.written, recorder.lost, recorder.held) == (600, 0, 0)


@pytest.mark.parametrize(
    ("latency", "stored_us"),
    [(0.0, 0), (0.000_123, 123), (0.299_999, 299_999), (8.000_001, 8_000_001), (1e9, 2**31 - 1)],
)
def test_a_latency_is_stored_to_the_microsecond(
    make: Make, tmp_path: Path, latency: float, stored_us: int
) -> None:
    recorder = make()
    recorder.note(row(latency=latency))
    recorder.flush()
    assert stored(tmp_path)["latency_us"].to_pylist() == [stored_us]


def test_each_row_keeps_its_own_texts_through_failures(make: Make, tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.write_text("a file where the record should be")
    recorder = make(url=str(place))
    noted = [
        row(
            number,
            id=('"é"', '"日本"', "7", "")[number % 4],
            sender=f"hyperty://ä/{number % 7}",
            to=f"hyperty://b/{number // 3}",
            outcome=list(Outcome)[number % 5],
            asserted=number % 2 == 0,
            listeners=number % 3,
        )
        for number in range(300)
    ]
    for number, each in enumerate(noted):
        recorder.note(each)
        if number % 100 == 99:
            recorder.flush()
    place.unlink()
    recorder.flush()
    names = ["id", "sender", "to", "outcome", "asserted", "listeners"]
    found = stored(place).select(names).to_pylist()
    assert found == [{name: getattr(each, name) for name in names} for each in noted]


def test_rows_noted_during_flushes_are_whole_and_written_once(make: Make, tmp_path: Path) -> None:
    recorder = make(buffer_rows=1 << 30)
    ended = threading.Event()

    def flush() -> None:
        while not ended.is_set():
            recorder.flush()

    def has_written(files: int) -> bool:
        return recorder.files > files or not recorder.held

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=flush)
    try:
        thread.start()
        number = 0
        while number < 30_000 or recorder.files < 3:
            recorder.note(row(number, to=f"hyperty://b/{number}", size=number))
            number += 1
            if number >= 30_000:  # the other thread has hardly run
                until(partial(has_written, recorder.files), 60, every=0.001)
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    recorder.flush()
    assert recorder.files > 2
    found = sorted((each["size"], each["id"], each["to"]) for each in stored(tmp_path).to_pylist())
    assert found == [(each, str(each), f"hyperty://b/{each}") for each in range(number)]
    assert (recorder.written, recorder.lost, recorder.held) == (number, 0, 0)


def test_a_late_row_lies_in_its_own_hour(make: Make, tmp_path: Path) -> None:
    recorder = make()
    for at in (NOON, NOON - 1, NOON + 3600, NOON - 86_400):
        recorder.note(row(at=at))
    recorder.flush()
    folders = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    assert folders == {
        "date=2026-11-20/hour=12", "date=2026-11-20/hour=11", "date=2026-11-20/hour=13",
        "date=2026-11-19/hour=12",
    }  # fmt: skip


def test_a_full_buffer_loses_rows_and_counts_them(
    make: Make, alarms: list[tuple[str, ...]]
) -> None:
    recorder = make(buffer_rows=1_000)
    for number in range(1_300):
        recorder.note(row(number))
    assert (recorder.held, recorder.lost) == (1_000, 300)
    recorder.flush()
    assert (recorder.written, recorder.lost, recorder.held) == (1_000, 300, 0)
    assert [alarm[:2] for alarm in alarms] == [(ALARM, "example.com")]


def test_a_disk_that_takes_nothing_keeps_rows_until_the_buffer_is_full(
    make: Make, tmp_path: Path, alarms: list[tuple[str, ...]]
) -> None:
    place = tmp_path / "gone"
    place.write_text("a file where the record should be")
    recorder = make(url=str(place), buffer_rows=1_000)
    for _ in range(3):
        for number in range(400):
            recorder.note(row(number))
        recorder.flush()
    assert (recorder.written, recorder.lost, recorder.held) == (0, 200, 1_000)
    assert recorder.fault
    assert [alarm[0] for alarm in alarms] == [ALARM]
    place.unlink()
    recorder.flush()
    recorder.note(row())
    recorder.flush()
    assert (recorder.written, recorder.lost, recorder.held) == (1_001, 200, 0)
    assert len(stored(place)) == 1_001
    assert alarms[-1] == ("clear", ALARM, "example.com")
    assert alarms[-2][2].startswith("200 rows lost")


def test_a_write_whose_answer_was_lost_is_repeated_as_it_was(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object may be there, and compacted by now: rows that came since are another one's."""
    recorder = make()
    recorder._files._is_object_store = True  # where nothing is put in place by a rename
    (tmp_path / folder_of(int(NOON))).mkdir(parents=True)
    write = pq.write_table

    def objects() -> list[list[str]]:
        return [dataset.dataset(path).to_table()["id"].to_pylist() for path in written()]

    def written() -> list[Path]:
        return sorted(tmp_path.rglob("*.parquet"))

    def says_nothing(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("msgnode.traffic.files.pq.write_table", says_nothing)
        for number in range(3):
            recorder.note(row(number))
            recorder.flush()
            assert objects() == [["0"]]
    (first,) = written()
    recorder.flush()
    assert objects() == [["0"], ["1", "2"]]
    assert written()[0] == first
    assert (recorder.written, recorder.lost, recorder.held) == (3, 0, 0)


def test_the_record_takes_no_more_than_its_cap(tmp_path: Path) -> None:
    def files(**limits: int) -> RecordFiles:
        return RecordFiles(str(tmp_path), "w", **({"max_bytes": 1 << 40, "min_free": 0} | limits))

    table = STORED.empty_table()
    size = files().write(int(NOON), table)
    with pytest.raises(RecordFull):
        files(max_bytes=size).write(int(NOON), table)
    with pytest.raises(RecordFull):
        files(min_free=1 << 62).write(int(NOON), table)
    assert files(max_bytes=size + 1).write(int(NOON), table) == size


def test_a_full_record_is_looked_at_every_half_minute_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks, look = [0.0], [], files.files_below
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(files, "files_below", lambda *where: looks.append(where) or look(*where))
    table = STORED.empty_table()
    record = RecordFiles(str(tmp_path), "w", max_bytes=1, min_free=0)
    record.write(int(NOON), table)
    clock[0] = 29.0
    for _ in range(3):
        with pytest.raises(RecordFull):
            record.write(int(NOON), table)
    assert len(looks) == 1
    (written,) = tmp_path.rglob("*.parquet")
    written.unlink()
    clock[0] = 30.0
    record.write(int(NOON), table)
    assert len(looks) == 2


def test_a_row_that_fits_no_column_does_not_take_others_with_it(make: Make) -> None:
    recorder = make()
    for number in range(10):
        recorder.note(row(number, size=2**40 if number == 5 else 1))
    recorder.flush()
    assert (recorder.written, recorder.lost, recorder.held) == (9, 1, 0)


def test_what_an_alarm_breaks_on_does_not_end_the_recorder(tmp_path: Path) -> None:
    def broken(*_: str) -> None:
        raise RuntimeError

    recorder = ParquetRecorder(
        RecordOptions(url=str(tmp_path), min_free=0, buffer_rows=1),
        node="n", worker="w", raise_alarm=broken, clear_alarm=broken,
    )  # fmt: skip
    recorder.start()
    recorder.note(row())
    recorder.note(row())
    recorder.close()
    assert (recorder.written, recorder.lost) == (1, 1)


def test_no_fault_of_a_write_ends_the_recorder_and_each_row_is_counted(
    make: Make, alarms: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as no memory, of which Python and Arrow say different things."""
    recorder = make(flush_seconds=0.01)

    def fails(*_: object, **__: object) -> None:
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr("msgnode.traffic.files.pq.write_table", fails)
        recorder.start()
        recorder.note(row(1))
        until(lambda: recorder.fault, 20)
        patch.setattr("msgnode.traffic.columns.hours_of", fails)
        recorder.note(row(2))
        until(lambda: recorder.lost, 20)
    until(lambda: recorder.written, 20)
    recorder.close()
    assert (recorder.written, recorder.lost, recorder.held) == (1, 1, 0)
    assert "MemoryError: no memory" in alarms[0][2]


def test_closing_writes_what_is_held(make: Make, tmp_path: Path) -> None:
    recorder = make(flush_seconds=3600)
    recorder.start()
    for number in range(50):
        recorder.note(row(number))
    recorder.close()
    assert len(stored(tmp_path)) == recorder.written == 50


def test_a_buffer_that_fills_is_written_before_its_time(make: Make) -> None:
    recorder = make(flush_seconds=3600, buffer_rows=100)
    recorder.start()
    for number in range(51):
        recorder.note(row(number))
    waiting.until(lambda: not recorder.held, 10)
    assert recorder.written == 51
    recorder.close()


def test_with_a_key_addresses_are_pseudonyms(make: Make, tmp_path: Path) -> None:
    recorder = make(pseudonym_key=b"key")
    recorder.note(row())
    recorder.note(row(to="hyperty://b/2", sender="hyperty://a/other"))
    recorder.flush()
    table = stored(tmp_path)
    assert table["to"].to_pylist() == [pseudonym("hyperty://b/2", b"key")] * 2
    assert len(set(table["sender"].to_pylist())) == 2
    assert all(text.startswith("hyperty://a/~") for text in table["sender"].to_pylist())
    assert table["session"].to_pylist()[0] != "s1"
    assert pseudonym("hyperty://b/2", b"key") != pseudonym("hyperty://b/2", b"other")


FLUSHED = """
import sys
from msgnode.core.record import TrafficRecord
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
recorder = ParquetRecorder(
    RecordOptions(url=sys.argv[1], min_free=0, pseudonym_key=b"key"),
    node="n", worker="w", raise_alarm=print, clear_alarm=lambda *_: None,
)
recorder.note(TrafficRecord(1.0, "s", "1", "message", "a:1", "b:2", 1, 1, "x"))
recorder.flush()
print(recorder.written, "pandas" in sys.modules)
"""


def test_the_record_does_not_load_pandas_into_the_node(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLUSHED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "False"]


KILLED = """
import sys, time
from msgnode.core.record import TrafficRecord
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
recorder = ParquetRecorder(
    RecordOptions(url=sys.argv[1], flush_seconds=0.2, min_free=0),
    node="n", worker="w", raise_alarm=print, clear_alarm=lambda *_: None,
)
recorder.start()
for number in range(10**9):
    recorder.note(TrafficRecord(time.time(), "s", str(number), "message", "a:1", "b:2", 1, 1, "x"))
    time.sleep(0.0005)
    if number % 100 == 0:
        print(number, flush=True)
"""


def test_a_killed_writer_leaves_whole_files_and_loses_seconds_only(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        while len(list(tmp_path.rglob("*.parquet"))) < 3:
            process.stdout.readline()
        killed_at = time.time()
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.read()
    table = stored(tmp_path)
    ids = sorted(map(int, table["id"].to_pylist()))
    assert ids == list(range(len(ids)))
    newest = max(table["at"].to_pylist()).timestamp()
    assert killed_at - newest < 5

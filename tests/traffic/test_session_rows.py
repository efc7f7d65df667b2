"""The record of sessions: their steps, as a real node takes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from msgnode.core.record import Outcome, SessionEvent, SessionRecord, TrafficRecord
from msgnode.traffic.pseudonyms import pseudonym
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
from tests.node import Node
from tests.traffic.rows import messages, raw_rows, sessions

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
KEY = b"a key"


def recorder(place: Path, **options: object) -> ParquetRecorder:
    def nothing(*_: str) -> None:
        return None

    given = RecordOptions(**({"url": str(place), "min_free": 0} | options))  # type: ignore[arg-type]
    return ParquetRecorder(
        given, node="example.com", worker="w", raise_alarm=nothing, clear_alarm=nothing
    )


def message(number: int) -> TrafficRecord:
    return TrafficRecord(
        NOON + 1, "s", str(number), "read", "hyperty://a/1", "hyperty://b/2", 3, 1,
        Outcome.DELIVERED, runtime="runtime://a/r",
    )  # fmt: skip


def ended(runtime: str = "runtime://a/r", **more: object) -> SessionRecord:
    given = {"ending": "grace period over", "lasted": 61.9, "resumptions": 3, "code": 4409}
    return SessionRecord(NOON, "s", runtime, SessionEvent.ENDED, **(given | more))  # type: ignore[arg-type]


def test_messages_and_sessions_of_an_hour_are_in_one_file(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    kept.note(message(1))
    kept.note_session(ended())
    kept.note(message(2))
    kept.flush()
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    rows = raw_rows(tmp_path)
    assert messages(rows)["id"].to_pylist() == ["1", "2"]
    (step,) = sessions(rows).to_pylist()
    wanted = {
        "event": "ended", "outcome": "grace period over", "lasted_s": 61, "resumptions": 3,
        "code": 4409, "session": "s", "runtime": "runtime://a/r", "sender": "runtime://a/r",
        "node": "example.com", "type": "", "size": 0,
    }  # fmt: skip
    assert {name: step[name] for name in wanted} == wanted
    assert (kept.written, kept.lost, kept.held) == (3, 0, 0)


def test_sessions_alone_and_then_messages_that_wait_are_written(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.write_text("a file where the record should be")
    kept = recorder(place)
    kept.note_session(ended())
    kept.flush()
    kept.note(message(1))
    kept.flush()
    assert (kept.written, kept.held) == (0, 2)
    place.unlink()
    kept.flush()
    rows = raw_rows(place)
    assert (messages(rows).num_rows, sessions(rows).num_rows) == (1, 1)


def test_steps_of_sessions_count_towards_the_buffer(tmp_path: Path) -> None:
    kept = recorder(tmp_path, buffer_rows=4)
    for _ in range(6):
        kept.note_session(ended())
    assert (kept.held, kept.lost) == (4, 2)


def test_a_step_that_does_not_fit_is_counted_and_takes_no_message_along(tmp_path: Path) -> None:
    kept = recorder(tmp_path)
    kept.note(message(1))
    kept.note_session(ended("runtime://a/\ud800"))
    kept.flush()
    assert (kept.written, kept.lost, kept.held) == (1, 1, 0)


def test_runtimes_become_pseudonyms_in_rows_of_sessions(tmp_path: Path) -> None:
    kept = recorder(tmp_path, pseudonym_key=KEY)
    kept.note_session(ended())
    kept.flush()
    (step,) = raw_rows(tmp_path).to_pylist()
    assert step["runtime"] == step["sender"] == pseudonym("runtime://a/r", KEY)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_node_records_how_sessions_go_on_and_end_also_across_a_restart(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(RECORD_FLUSH_SECONDS=0.2)
    async with node.ws() as first:
        await first.open()
    async with node.ws() as second:
        await second.reopen(first.runtime_url, first.token)
        node.terminate()
        assert await second.close_code() == 3001
    assert node.status() == 0
    node.start()
    async with node.ws() as third:
        await third.reopen(first.runtime_url, second.token)
        assert await third.close_session() == 1000
    node.terminate()
    assert node.status() == 0
    steps = sessions(raw_rows(node.data_dir / "record")).to_pylist()
    shown = ("event", "outcome", "code", "resumptions")
    assert [tuple(row[name] for name in shown) for row in steps] == [
        ("opened", "", 0, 0),
        ("lost", "", 0, 0),
        ("resumed", "", 0, 0),
        ("lost", "", 3001, 0),
        ("resumed", "", 0, 0),
        ("ended", "closed by its runtime", 1000, 2),
    ]
    assert {row["runtime"] for row in steps} == {first.runtime_url}
    assert len({row["session"] for row in steps}) == 1

"""A draft held against the record: what changes is counted once, what cannot be told is said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from msgnode.core.record import Outcome, TrafficRecord
from msgnode.traffic import kinds
from msgnode.traffic.recorder import ParquetRecorder, RecordOptions
from policies.apps import PoliciesConfig
from policies.authoring import pap
from policies.authoring.drafts import replace_draft
from policies.authoring.replay import replay
from policies.enforcement.defaults import Defaults
from policies.enforcement.snapshot import make_snapshot
from policies.models import Rule

HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)


def kind(**changes: Any) -> kinds.Kind:
    whole = {"hour": HOUR, "type": "read", "sender": "hyperty://a/1", "to": "comm://a/x",
             "runtime": "runtime://a/r"}  # fmt: skip
    return kinds.Kind(**{**whole, **changes})


def snapshot(*rules: dict[str, Any]) -> Any:
    policies = [{"id": "P", "rules": list(rules)}]
    return make_snapshot([{"id": "S", "mode": "enforce", "policies": policies}], {}).enforced


def deny(id_: str, **condition: Any) -> dict[str, Any]:
    return {"id": id_, "effect": "deny", "condition": condition}


def test_what_a_new_rule_refuses_is_counted_by_rule_sender_and_hour() -> None:
    draft = snapshot(deny("no-reads", msgType={"equals": "read"}))
    rows = [(kind(), 7), (kind(type="update"), 5), (kind(runtime="runtime://a/s"), 2)]
    found = replay(rows, snapshot(), draft, Defaults())
    assert (found.looked_at, found.unknown, found.refused, found.passed) == (14, 0, 9, 0)
    assert [(each.name, each.refused) for each in found.rules] == [("S/P/no-reads", 9)]
    assert [each.name for each in found.senders] == ["runtime://a/r", "runtime://a/s"]
    assert [(hour, each.both) for hour, each in found.hours] == [(HOUR, 9)]


def test_what_a_rule_that_goes_refused_would_pass() -> None:
    in_force = snapshot(deny("no-x", msgTo={"equals": "comm://a/x"}))
    found = replay([(kind(), 3)], in_force, snapshot(), Defaults())
    assert (found.refused, found.passed) == (0, 3)
    assert found.rules[0].name == "S/P/no-x"


@pytest.mark.parametrize(
    "condition",
    [
        {"bodyValue": {"equals": "x"}}, {"srcUsername": {"equals": "a@b"}},
        {"time": {"moreThan": "12:00:00"}}, {"srcAddress": {"equals": "10.0.0.1"}},
    ],
)  # fmt: skip
def test_what_the_record_does_not_say_is_said_to_be_unknown(condition: Any) -> None:
    draft = snapshot({"id": "R", "effect": "deny", "condition": condition})
    found = replay([(kind(), 3)], snapshot(), draft, Defaults())
    assert (found.looked_at, found.unknown, found.refused) == (0, 3, 0)


def test_types_nobody_knows_and_rows_that_are_no_message_are_unknown() -> None:
    rows = [(kind(type="other"), 1), (kind(sender=""), 2), (kind(to="no address"), 4)]
    found = replay(rows, snapshot(), snapshot(deny("all", msgType={"like": "*"})), Defaults())
    assert found.unknown + found.looked_at == 7
    assert found.unknown >= 3


def record(folder: Path, rows: list[tuple[float, str, int]]) -> str:
    """Keep so many messages of a type, at moments, as a node does."""
    options = RecordOptions(
        url=str(folder), flush_seconds=60, buffer_rows=10_000, max_bytes=10**9, min_free=0,
        pseudonym_key=b"",
    )  # fmt: skip
    kept = ParquetRecorder(
        options, node="a", worker="w", raise_alarm=lambda *_: None, clear_alarm=lambda *_: None
    )
    kept.start()
    for at, type_, number in rows:
        for _ in range(number):
            kept.note(
                TrafficRecord(at, "s", "1", type_, "hyperty://a/1", "comm://a/x", 10, 1,
                              Outcome.DELIVERED, runtime="runtime://a/r")
            )  # fmt: skip
    kept.close()
    return str(folder)


def test_the_record_is_read_by_hours_and_added_up(tmp_path: Path) -> None:
    now = HOUR.timestamp() + 600
    rows = [(now, "read", 5), (now + 1, "read", 2), (now - 3600, "update", 4), (now - 7200, "x", 9)]
    url = record(tmp_path / "raw", rows)
    found = kinds.kinds(url, datetime.fromtimestamp(now, UTC), 2, 10)
    assert found.rows == 11
    assert [(each.type, each.hour, count) for each, count in found.most] == [
        ("read", HOUR, 7),
        ("update", HOUR.replace(hour=11), 4),
    ]
    assert kinds.kinds(str(tmp_path / "nothing"), HOUR, 24, 10).most == []


def test_a_long_record_is_not_read_whole(tmp_path: Path, monkeypatch: Any) -> None:
    now = HOUR.timestamp() + 600
    url = record(tmp_path / "raw", [(now, "read", 5), (now - 3600, "read", 5)])
    monkeypatch.setattr(kinds, "MOST_ROWS", 3)
    found = kinds.kinds(url, datetime.fromtimestamp(now, UTC), 2, 10)
    assert (found.rows, found.is_whole) == (5, False)


@pytest.mark.django_db
def test_the_page_tells_what_the_draft_would_change(admin_client: Client, monkeypatch: Any) -> None:
    policies = [{"id": "P", "rules": [deny("R", msgType={"equals": "delete"})]}]
    replace_draft([{"id": "S", "mode": "enforce", "policies": policies}], {})
    pap.publish()
    Rule.objects.update(condition={"msgType": {"equals": "read"}})
    asked: list[int] = []

    def recorded(until: datetime, hours: int, most: int) -> kinds.Kinds:
        asked.append(hours)
        return kinds.Kinds([(kind(), 1_200), (kind(type="delete"), 30)], 1_300, True)

    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", recorded, raising=False)
    page = admin_client.get("/admin/policies/policyset/replay/?hours=6").content.decode()
    assert asked == [6]
    assert "<strong>1,200</strong>" in page and "<strong>30</strong>" in page
    assert "S/P/R" in page and "runtime://a/r" in page
    assert "70 messages of rarer kinds were left out" in page

    def broken(*_: Any) -> Any:
        raise OSError("no such disk")

    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", broken, raising=False)
    assert "no such disk" in admin_client.get("/admin/policies/policyset/replay/").content.decode()
    monkeypatch.setattr(PoliciesConfig.installed(), "recorded", None, raising=False)
    page = admin_client.get("/admin/policies/policyset/replay/?hours=9999").content.decode()
    assert "keeps no record" in page

"""Alarms of one kind that stand at once are limited, what is beyond counted in one; their texts."""

from __future__ import annotations

import pytest

from msgnode.models import Alarm
from msgnode.storage import alarms
from msgnode.storage.alarms import OTHERS, Raised

pytestmark = pytest.mark.django_db


def test_beyond_their_number_alarms_of_a_kind_count_up_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "STANDING_AT_MOST", 3)
    alarms.raise_alarms(Raised("gap", f"runtime://x/{each}", "lost") for each in range(5))
    alarms.raise_alarms(Raised("gap", f"runtime://x/{each}", "lost") for each in range(6))
    alarms.raise_alarm("pool-exhausted", "sip", "empty")
    standing = dict(Alarm.objects.filter(kind="gap").values_list("subject", "count"))
    assert len(standing) == 4
    assert standing.pop(OTHERS) == 2 + 3
    assert set(standing.values()) == {2}
    assert Alarm.objects.filter(kind="pool-exhausted").exists()


def test_one_that_was_cleared_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "STANDING_AT_MOST", 1)
    alarms.raise_alarm("gap", "one", "lost")
    alarms.clear_alarm("gap", "one")
    alarms.raise_alarm("gap", "two", "lost")
    assert not Alarm.objects.filter(subject=OTHERS).exists()


def test_what_strangers_say_is_stored_without_nul_and_cleared_by_the_same_name() -> None:
    alarms.raise_alarm("gap", "on\0e", "lo\0st")
    (alarm,) = Alarm.objects.all()
    assert (alarm.subject, alarm.text) == ("on\ufffde", "lo\ufffdst")
    alarms.clear_alarm("gap", "on\0e")
    assert not Alarm.objects.filter(cleared_at=None).exists()

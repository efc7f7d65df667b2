"""What time, sessions and operators do to entries, and who hears of it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from msgnode.models import Alarm
from msgnode.storage.believed_clock import ALARM as CLOCK_JUMPED
from msgnode.tasks import purge_registry
from registry import api, lifecycle, tasks
from registry.api import Kind
from registry.models import Hyperty, StatusChange, User

from .conftest import Clock, data_object, hyperty

ONE = "hyperty://d/1"

pytestmark = pytest.mark.django_db


def register(url: str = ONE, user: str = "alice", **other: object) -> None:
    api.register(Kind.HYPERTY, url, hyperty(**other), user)


def purge() -> int:
    return api.purge(timezone.now())


def test_case_22_a_sign_of_life_of_a_live_entry_is_no_news(heard: list, clock: Clock) -> None:
    register()
    api.refresh(Kind.HYPERTY, ONE)
    api.update(Kind.HYPERTY, ONE, {"status": "live"})
    assert heard == []


def test_case_22_a_revived_entry_is_announced_once(heard: list) -> None:
    register(status="disconnected")
    api.refresh(Kind.HYPERTY, ONE)
    api.refresh(Kind.HYPERTY, ONE)
    assert heard == [(ONE, "live")]


def test_case_23_expiry_is_announced_once_for_each_entry(heard: list, clock: Clock) -> None:
    register(expires=1)
    register("hyperty://d/2", expires=100)
    api.register(Kind.OBJECT, "comm://d/1", data_object(expires=1))
    clock.forward(5)
    assert tasks.expire() == 2
    assert tasks.expire() == 0
    assert sorted(heard) == [("comm://d/1", "disconnected"), (ONE, "disconnected")]


def test_an_entry_revived_after_its_time_was_disconnected_in_between(
    heard: list, clock: Clock
) -> None:
    register(expires=1)
    clock.forward(5)
    api.refresh(Kind.HYPERTY, ONE)
    assert heard == [(ONE, "disconnected"), (ONE, "live")]
    causes = list(StatusChange.objects.order_by("id").values_list("cause", flat=True))
    assert causes == ["registered", "expired", "refreshed"]


def test_a_read_of_an_expired_entry_writes_nothing(heard: list, clock: Clock) -> None:
    register(expires=1)
    clock.forward(5)
    assert api.get(Kind.HYPERTY, ONE).status == "disconnected"
    assert api.find(api.Search(Kind.HYPERTY, user="alice"))[0].status == "disconnected"
    assert Hyperty.objects.get().status == "live"
    assert heard == []


def test_a_step_changes_no_more_than_its_limit(clock: Clock) -> None:
    for number in range(5):
        register(f"hyperty://d/{number}", expires=0)
    clock.forward(2)
    assert [lifecycle.expire_due(limit=2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("closed", ["runtime://d/r1", "hyperty-runtime://d/r1"])
def test_a_runtime_that_is_gone_takes_its_entries_along(heard: list, closed: str) -> None:
    register(runtime="runtime://d/r1")
    register("hyperty://d/2", runtime="runtime://d/r10")
    api.register(Kind.OBJECT, "comm://d/1", data_object(runtime="runtime://d/r1"))
    assert api.runtimes_gone([closed]) == 2
    assert api.runtimes_gone([closed]) == 0
    assert sorted(heard) == [("comm://d/1", "disconnected"), (ONE, "disconnected")]
    assert api.get(Kind.HYPERTY, "hyperty://d/2").is_available


@pytest.mark.parametrize(("shares", "left"), [(True, 3), (False, 2)])
def test_of_a_runtime_that_has_sessions_the_entries_of_absent_owners_end(
    shares: bool, left: int
) -> None:
    ann, ben = (api.subject_mark("https://idp", name) for name in ("ann", "ben"))
    tab, gone = api.session_mark("1"), api.session_mark("2")
    for number, owner in enumerate((ann, ben, tab, gone)):
        register(f"hyperty://d/{number}", runtime="runtime://d/r1")
        Hyperty.objects.filter(url=f"hyperty://d/{number}").update(owner=owner)
    assert api.owners_gone({"hyperty-runtime://d/r1": frozenset({ann, tab})}, shares) == 4 - left
    states = [api.get(Kind.HYPERTY, f"hyperty://d/{number}").is_available for number in range(4)]
    assert states == [True, False, True, shares]
    assert api.owners_gone({"runtime://d/other": frozenset()}, shares) == 0


def test_an_ended_entry_dies_and_is_purged_with_its_user(
    clock: Clock, settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "DEAD_AFTER", timedelta(seconds=100))
    settings.REGISTRY = settings.REGISTRY | {"PURGE_AFTER": 1000}
    register(status="disconnected")
    register("hyperty://d/2", user="bob")
    clock.forward(99)
    assert purge() == 0
    clock.forward(2)
    purge()
    assert api.get(Kind.HYPERTY, ONE).status == "dead"
    clock.forward(999)
    purge()
    assert api.get(Kind.HYPERTY, ONE).status == "dead"
    clock.forward(2)
    purge()
    assert api.get(Kind.HYPERTY, ONE) is None
    assert list(User.objects.values_list("user_id", flat=True)) == ["bob"]


@pytest.mark.parametrize("days", [365, 30 * 365])
def test_nothing_is_purged_on_the_word_of_a_clock_that_has_jumped(
    clock: Clock, settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int
) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(lifecycle, "DEAD_AFTER", timedelta(seconds=100))
    settings.REGISTRY = settings.REGISTRY | {"PURGE_AFTER": 1000}
    register(status="disconnected")
    clock.forward(101)
    assert purge_registry() == 1  # it is dead
    register("hyperty://d/2", status="disconnected")
    clock.forward(days * 86_400)
    for _ in range(2):
        assert purge_registry() == 0
    assert Alarm.objects.filter(kind=CLOCK_JUMPED, cleared_at=None).exists()
    clock.forward(-days * 86_400)
    assert [api.get(Kind.HYPERTY, url).status for url in (ONE, "hyperty://d/2")] == [
        "dead", "disconnected",
    ]  # fmt: skip


def test_beyond_what_is_kept_at_most_what_ended_first_is_deleted(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "ENDED_AT_MOST", 2)
    monkeypatch.setattr(lifecycle, "CHANGES_AT_MOST", 3)
    for number in range(5):
        register(f"hyperty://d/{number}", expires=1)
        clock.forward(5)
        lifecycle.expire_due()
    register("hyperty://d/live", expires=3600)
    purge()
    left = set(Hyperty.objects.values_list("url", flat=True))
    assert left == {"hyperty://d/3", "hyperty://d/4", "hyperty://d/live"}
    assert StatusChange.objects.count() <= 3


def test_a_dead_entry_is_unavailable_and_can_come_back(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "DEAD_AFTER", timedelta())
    register(status="disconnected")
    purge()
    assert api.outcome(api.find(api.Search(Kind.HYPERTY, user="alice"))) == 408
    assert api.refresh(Kind.HYPERTY, ONE).status_changed
    assert api.get(Kind.HYPERTY, ONE).status == "live"


def test_history_is_kept_for_its_time(clock: Clock, settings) -> None:
    settings.REGISTRY = settings.REGISTRY | {"HISTORY_KEPT": 100}
    register()
    clock.forward(101)
    register("hyperty://d/2")
    purge()
    assert list(StatusChange.objects.values_list("url", flat=True)) == ["hyperty://d/2"]


def test_the_feed_tells_of_expiry_before_anybody_has_swept(clock: Clock) -> None:
    register(expires=1)
    clock.forward(5)
    assert [entry.url for entry in api.take_news()] == [ONE]
    assert api.take_news() == []


def test_a_change_whose_listener_fails_is_not_made(heard: list) -> None:
    register()

    def fail(changes: object) -> None:
        raise RuntimeError("no room")

    api.on_change(fail)
    with pytest.raises(RuntimeError):
        api.disconnect(Kind.HYPERTY, ONE)
    assert api.get(Kind.HYPERTY, ONE).status == "live"


_MEANWHILE = """
import threading
import django; django.setup()
from django.db import connection, connections
from registry import api, lifecycle
from registry.models import Hyperty
facts = dict(expires=100, dataSchemes=[], resources=[], runtime="r://d/1", status="live")
facts["descriptor"] = "x"
kind = api.Kind.HYPERTY
for at in range(1, 8):
    api.register(kind, f"hyperty://d/{at}", facts, f"user://d/{at}")
    asked = []
    def register():
        api.register(kind, f"hyperty://d/new{at}", facts, f"user://d/{at}")
        connections.close_all()
    other = threading.Thread(target=register)
    def meanwhile(execute, *query):
        asked.append(query)
        if len(asked) == at:
            other.start()
            other.join(0.5)
        return execute(*query)
    with connection.execute_wrapper(meanwhile):
        lifecycle.delete_rows(Hyperty, [Hyperty.objects.get(url=f"hyperty://d/{at}").pk])
    if other.ident:
        other.join()
        assert api.get(kind, f"hyperty://d/new{at}"), at
"""


@pytest.mark.long
def test_a_user_who_registers_while_the_last_entry_is_purged_keeps_the_new_one(
    tmp_path: Path, migrated_url: str
) -> None:
    """Whichever query of the purge it comes before, on PostgreSQL."""
    environment = {
        **os.environ,
        "DATABASE_URL": migrated_url,
        "DATA_DIR": str(tmp_path),
        "SECRET_KEY": "only for tests",
        "DJANGO_SETTINGS_MODULE": "msgnode.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", _MEANWHILE],
        env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]

"""The purge deletes what is kept no longer, nothing else, and never much at once."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.db import connection, connections
from django.utils import timezone

from msgnode import tasks
from msgnode.identity.provider import keys as provider_keys
from msgnode.models import (
    AddressOwner,
    Alarm,
    Allocation,
    AuditEntry,
    ControlMessage,
    ProviderKey,
    Session,
    Subscription,
)
from msgnode.storage.believed_clock import believed_now

pytestmark = pytest.mark.django_db


def session(state: str, closed_at: datetime | None = None) -> Session:
    return Session.objects.create(runtime_url="runtime://x/1", state=state, closed_at=closed_at)


def ago(**units: float) -> datetime:
    return timezone.now() - timedelta(**units)


def test_closed_sessions_go_after_their_days_with_what_they_hold(settings: Any) -> None:
    settings.NODE = {**settings.NODE, "CLOSED_SESSION_DAYS": 7}
    old = session("closed", ago(days=7, minutes=1))
    Allocation.objects.create(address="hyperty://x/1", scheme="hyperty", session=old)
    Subscription.objects.create(address="comm://x/1", session=old)
    kept = {
        session("closed", ago(days=6, hours=23)).pk,
        session("open").pk,
        session("detached").pk,
        session("open", ago(days=30)).pk,  # resumed: it carries the time of an earlier end
    }
    assert tasks.purge()["sessions"] == 1
    assert set(Session.objects.values_list("pk", flat=True)) == kept
    assert not Allocation.objects.exists()
    assert not Subscription.objects.exists()


def test_control_messages_go_after_an_hour() -> None:
    ControlMessage.objects.create(kind="old", created_at=ago(minutes=61))
    ControlMessage.objects.create(kind="new", created_at=ago(minutes=59))
    assert tasks.purge()["control messages"] == 1
    assert [row.kind for row in ControlMessage.objects.all()] == ["new"]


def test_alarms_go_thirty_days_after_they_were_cleared() -> None:
    Alarm.objects.create(kind="stands", text="x", raised_at=ago(days=90))
    Alarm.objects.create(kind="new", text="x", cleared_at=ago(days=29))
    Alarm.objects.create(kind="old", text="x", cleared_at=ago(days=31))
    assert tasks.purge()["alarms"] == 1
    assert set(Alarm.objects.values_list("kind", flat=True)) == {"stands", "new"}


def test_expired_browser_sessions_go() -> None:
    BrowserSession.objects.create(session_key="old", expire_date=ago(minutes=1))
    BrowserSession.objects.create(session_key="new", expire_date=ago(minutes=-1))
    assert tasks.purge()["browser sessions"] == 1
    assert [row.session_key for row in BrowserSession.objects.all()] == ["new"]


def test_no_transaction_deletes_more_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BATCH", 10)
    old = session("closed", ago(days=30))
    Subscription.objects.bulk_create(
        Subscription(session=old, address=f"comm://x/{number}") for number in range(25)
    )
    ControlMessage.objects.bulk_create(
        ControlMessage(kind="old", created_at=ago(hours=2)) for _ in range(25)
    )
    batches: list[int] = []
    delete = tasks._delete
    monkeypatch.setattr(tasks, "_delete", lambda rows: batches.append(len(rows)) or delete(rows))
    deleted = tasks.purge()
    assert deleted["control messages"] == 25
    assert not Subscription.objects.exists()
    assert batches == [10, 10, 5, 1, 10, 10, 5]


def test_the_schedule_names_a_task_that_exists(settings: Any) -> None:
    from msgnode.celery import app

    app.loader.import_default_modules()
    for entry in settings.BEAT_SCHEDULE.values():
        assert entry["task"] in app.tasks


def test_tokens_that_nobody_can_use_go(settings: Any) -> None:
    from django.contrib.auth import get_user_model
    from oauth2_provider.models import (
        get_access_token_model,
        get_grant_model,
        get_refresh_token_model,
    )

    user = get_user_model().objects.create_user("alice")
    client = oauth_client()
    tokens, grants = get_access_token_model().objects, get_grant_model().objects
    same = {"user": user, "application": client}
    tokens.create(**same, token="old", expires=ago(minutes=1))
    kept = tokens.create(**same, token="new", expires=ago(minutes=-1))
    grants.create(**same, code="old", expires=ago(minutes=1), redirect_uri="https://x/")
    settings.PROVIDER = {**settings.PROVIDER, "REFRESH_TOKEN_SECONDS": 3600}
    refreshing = get_refresh_token_model().objects
    for hours in (2, 0):
        row = refreshing.create(**same, token=f"{hours} hours old")
        refreshing.filter(pk=row.pk).update(created=ago(hours=hours))
    assert tasks.purge()["tokens"] == 3
    assert refreshing.get().token == "0 hours old"
    assert list(tokens.all()) == [kept]
    assert not grants.exists()


def test_the_audit_is_kept_for_its_days(settings: Any) -> None:
    settings.AUDIT_DAYS = 10
    AuditEntry.objects.create(actor="a", action="x", object="old", at=ago(days=11))
    AuditEntry.objects.create(actor="a", action="x", object="new", at=ago(days=9))
    assert tasks.purge()["audit entries"] == 1
    assert [entry.object for entry in AuditEntry.objects.all()] == ["new"]


def test_an_address_is_reserved_for_its_last_owner_for_its_days(settings: Any) -> None:
    settings.IDENTITY = {**settings.IDENTITY, "OWNER_DAYS": 10}
    for days in (9, 11):
        AddressOwner.objects.create(
            address=f"hyperty://x/{days}", issuer="i", subject="s", seen_at=ago(days=days)
        )
    assert tasks.purge()["address owners"] == 1
    assert AddressOwner.objects.get().address == "hyperty://x/9"


def test_the_signing_key_is_renewed_when_it_is_old(settings: Any) -> None:
    first = provider_keys.jwk_set()["keys"]
    assert tasks.rotate_provider_key() == ""
    old = ago(days=provider_keys.LIFETIME.days + 1)
    ProviderKey.objects.update(signs_from=old)
    made = tasks.rotate_provider_key()
    assert made
    assert [key["kid"] for key in provider_keys.jwk_set()["keys"]] == [first[0]["kid"], made]
    assert tasks.rotate_provider_key() == ""


def oauth_client() -> Any:
    from oauth2_provider.models import get_application_model

    return get_application_model().objects.create(
        client_id="x", client_type="public", authorization_grant_type="authorization-code"
    )


def test_closed_sessions_beyond_their_number_go_the_longest_closed_first(settings: Any) -> None:
    settings.NODE = {**settings.NODE, "MAX_CLOSED_SESSIONS": 2}
    closed = [session("closed", ago(minutes=each)) for each in range(4)]
    live = session("open")
    assert tasks.purge()["sessions"] == 2
    left = set(Session.objects.values_list("pk", flat=True))
    assert left == {closed[0].pk, closed[1].pk, live.pk}


def test_what_attacks_leave_is_kept_in_limited_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "BATCH", 2)
    monkeypatch.setattr(tasks, "LAST_OWNERS", 3)
    monkeypatch.setattr(tasks, "CLEARED_ALARMS_AT_MOST", 3)
    for each in range(8):
        AddressOwner.objects.create(
            address=f"hyperty://x/{each}", issuer="i", subject="s", seen_at=ago(minutes=each)
        )
        Alarm.objects.create(kind="x", subject=str(each), text="x", cleared_at=ago(minutes=each))
    Alarm.objects.create(kind="stands", text="x", raised_at=ago(minutes=90))
    purged = tasks.purge()
    assert (purged["address owners"], purged["alarms"]) == (5, 5)
    owners = AddressOwner.objects.values_list("address", flat=True)
    assert set(owners) == {f"hyperty://x/{each}" for each in range(3)}
    assert set(Alarm.objects.values_list("subject", flat=True)) == {"", "0", "1", "2"}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL gives space back itself")
def test_what_deleted_rows_have_left_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "grown.sqlite3"
    with closing(sqlite3.connect(file)) as made:
        made.execute("PRAGMA auto_vacuum=INCREMENTAL")
        made.execute("CREATE TABLE t (x)")
        made.executemany("INSERT INTO t VALUES (?)", [("x" * 3_000,)] * 2_000)
        made.commit()
        made.execute("DELETE FROM t")
        made.commit()
    grown = file.stat().st_size
    other = type(connections["default"])(connection.settings_dict | {"NAME": str(file)}, "grown")
    monkeypatch.setattr(tasks, "connection", other)
    with closing(other):
        assert tasks.give_space_back(pages=100) > 1_000
    assert file.stat().st_size < grown / 10


def test_nothing_goes_on_the_word_of_a_clock_that_has_jumped(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    AuditEntry.objects.create(
        actor="a", action="x", object="y", before={}, after={},
        at=ago(days=settings.AUDIT_DAYS + 300),
    )  # fmt: skip
    believed_now(ago(days=365))
    assert tasks.purge()["audit entries"] == 0
    (tmp_path / "clock.json").unlink()
    assert tasks.purge()["audit entries"] == 1

"""Celery tasks of the node: most delete what is no longer kept, in small transactions.

SQLite has one writer and the node's group commits must not wait for it: at most BATCH rows per
transaction, found by an index, dependent rows first so that no cascade exceeds the batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

from axes.models import AccessAttempt
from celery import shared_task
from django.conf import settings
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_grant_model,
    get_id_token_model,
    get_refresh_token_model,
)

from msgnode.bus.last_owners import LAST_OWNERS
from msgnode.identity.provider import keys as provider_keys
from policies.enforcement import decision_log
from registry import api as registry

from .identity import bindings
from .models import (
    AddressOwner,
    Alarm,
    AlarmNotice,
    Allocation,
    AuditEntry,
    ControlMessage,
    DeviceOutlet,
    Invitation,
    PushEndpoint,
    Revocation,
    SentInvitation,
    Session,
    Subscription,
)
from .storage import notices
from .storage.believed_clock import believed_now
from .storage.deletion import delete_with_dependents

BATCH = 1_000
_INCREMENTAL = 2
CONTROL_KEPT = timedelta(hours=1)
ALARMS_KEPT = timedelta(days=30)
FAILURES_KEPT = timedelta(days=30)
SENT_KEPT = timedelta(hours=1)  # so that every worker has seen that it ended
CLEARED_ALARMS_AT_MOST = 10_000
NOTICES_AT_MOST = 10_000
FAILURES_AT_MOST = 100_000
_LIVE = Session.objects.exclude(state=Session.State.CLOSED)


@shared_task(name="msgnode.purge", ignore_result=False)
def purge() -> dict[str, int]:
    """Delete what is kept no longer; the numbers of deleted rows by name."""
    try:
        return _purge()
    finally:
        give_space_back()


def give_space_back(pages: int = 1_000) -> int:
    """Return what deleted rows have left in an SQLite file; PostgreSQL does that itself.

    A few pages in each transaction, because the node's commits wait meanwhile.

    Returns:
        How many pages were returned.
    """
    if connection.vendor != "sqlite":
        return 0
    given = 0
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum")
        if cursor.fetchone()[0] != _INCREMENTAL:
            return 0
        while True:
            cursor.execute("PRAGMA freelist_count")
            before = cursor.fetchone()[0]
            cursor.execute(f"PRAGMA incremental_vacuum({int(pages)})")
            cursor.fetchall()  # it goes on as its rows are read
            cursor.execute("PRAGMA freelist_count")
            freed = before - cursor.fetchone()[0]
            if freed <= 0:
                break
            given += freed
        if not connection.in_atomic_block:
            cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return given


def _purge() -> dict[str, int]:
    now = believed_now(timezone.now())
    owners_kept = now - timedelta(days=settings.IDENTITY["OWNER_DAYS"])
    return {
        "sessions": purge_sessions(now - timedelta(days=settings.NODE["CLOSED_SESSION_DAYS"]))
        + purge_sessions_beyond(int(settings.NODE["MAX_CLOSED_SESSIONS"])),
        "webhooks and push subscriptions": delete_in_batches(
            DeviceOutlet.objects.exclude(Exists(_LIVE.filter(pk=OuterRef("session_id"))))
        ),
        "control messages": delete_in_batches(
            ControlMessage.objects.filter(created_at__lt=now - CONTROL_KEPT)
        ),
        "alarms": delete_in_batches(Alarm.objects.filter(cleared_at__lt=now - ALARMS_KEPT))
        + delete_beyond(
            Alarm.objects.exclude(cleared_at=None), "cleared_at", CLEARED_ALARMS_AT_MOST
        ),
        "notices": delete_in_batches(AlarmNotice.objects.filter(at__lt=now - ALARMS_KEPT))
        + delete_beyond(AlarmNotice.objects.exclude(sent_at=None), "at", NOTICES_AT_MOST),
        "invitations": delete_in_batches(Invitation.objects.filter(expires_at__lt=now))
        + delete_in_batches(PushEndpoint.objects.filter(expires_at__lt=now), delete_with_dependents)
        + delete_in_batches(SentInvitation.objects.filter(ends_at__lt=now - SENT_KEPT)),
        "revocations": delete_in_batches(Revocation.objects.filter(ends_at__lt=now)),
        "bindings of tokens": bindings.purge(now, BATCH),
        "address owners": delete_in_batches(AddressOwner.objects.filter(seen_at__lt=owners_kept))
        + delete_beyond(AddressOwner.objects.all(), "seen_at", LAST_OWNERS),
        "browser sessions": delete_in_batches(BrowserSession.objects.filter(expire_date__lt=now)),
        "tokens": purge_tokens(now),
        "failed log-ins": delete_in_batches(
            AccessAttempt.objects.filter(attempt_time__lt=now - FAILURES_KEPT)
        )
        + delete_beyond(AccessAttempt.objects.all(), "attempt_time", FAILURES_AT_MOST),
        "audit entries": delete_in_batches(
            AuditEntry.objects.filter(at__lt=now - timedelta(days=settings.AUDIT_DAYS))
        ),
    }


def purge_tokens(now: datetime) -> int:
    """Delete what the provider has issued and nobody can use any more, refresh tokens first."""
    unused = now - timedelta(seconds=settings.PROVIDER["REFRESH_TOKEN_SECONDS"])
    over = (
        get_refresh_token_model().objects.filter(created__lt=unused),
        get_access_token_model().objects.filter(expires__lt=now, refresh_token=None),
        get_id_token_model().objects.filter(expires__lt=now, access_token=None),
        get_grant_model().objects.filter(expires__lt=now),
    )
    return sum(delete_in_batches(rows) for rows in over)


@shared_task(name="msgnode.backup", ignore_result=False, track_started=True)
def back_up() -> dict[str, Any]:
    """Make a backup; what `manage.py backup --json` says, or the fault."""
    return _said_by("backup")


@shared_task(name="msgnode.check_backup", ignore_result=False, track_started=True)
def check_backup(name: str) -> dict[str, Any]:
    """Check whether an archive in DATA_DIR/backups could be restored; nothing is changed."""
    archive = str(settings.DATA_DIR / "backups" / name)
    return {"archive": archive, **_said_by("restore", archive, check=True)}


def _said_by(command: str, *words: str, **options: bool) -> dict[str, Any]:
    """What a command says as JSON. It is above this module, so it is called by its name."""
    said = StringIO()
    try:
        call_command(command, *words, json=True, stdout=said, **options)
    except CommandError as fault:
        return {"fault": str(fault)}
    found: dict[str, Any] = json.loads(said.getvalue())
    return found


@shared_task(name="policies.purge")
def purge_decision_log() -> int:
    """Delete decisions older than POLICY["LOG_DAYS"]; their number.

    Here and not in `policies`, because the clock that it trusts is of the node.
    """
    now = believed_now(timezone.now())
    return decision_log.purge(now - timedelta(days=settings.POLICY["LOG_DAYS"]))


@shared_task(name="registry.purge", ignore_result=True)
def purge_registry() -> int:
    """Mark entries of the registry that ended long ago as dead, delete old dead ones; their number.

    Here and not in `registry`, for the same reason.
    """
    return registry.purge(believed_now(timezone.now()))


@shared_task(name="msgnode.send_notices", ignore_result=True)
def send_notices() -> dict[str, int]:
    """Tell who is to be told of the alarms of alarm rules; how many were, and how many failed."""
    return notices.send_due()


@shared_task(name="msgnode.rotate_provider_key", ignore_result=False)
def rotate_provider_key() -> str:
    """Publish a new signing key when the newest is 90 days old; its id, if so."""
    made = provider_keys.rotate_if_due()
    return made.kid if made else ""


def purge_sessions(closed_before: datetime) -> int:
    """Delete sessions closed before a moment, with what they may still hold."""
    old = Session.objects.filter(state=Session.State.CLOSED, closed_at__lt=closed_before)
    deleted = 0
    while ids := list(old.order_by("closed_at").values_list("pk", flat=True)[:BATCH]):
        for dependent in (Allocation, Subscription, DeviceOutlet):
            delete_in_batches(dependent.objects.filter(session__in=ids))
        deleted += _delete(Session.objects.filter(pk__in=ids, state=Session.State.CLOSED))
    return deleted


def purge_sessions_beyond(kept: int) -> int:
    """Delete closed sessions, the longest closed first, until so many are left."""
    closed = Session.objects.filter(state=Session.State.CLOSED).order_by("-closed_at")
    last = closed.values_list("closed_at", flat=True)[kept : kept + 1].first()
    return purge_sessions(last + timedelta(microseconds=1)) if last is not None else 0


def delete_beyond(rows: QuerySet[Any], column: str, kept: int) -> int:
    """Delete the oldest rows of a query, by this column, until so many are left."""
    deleted = 0
    newest_first = rows.order_by(f"-{column}", "-pk")
    while ids := list(newest_first.values_list("pk", flat=True)[kept : kept + BATCH]):
        deleted += _delete(rows.model._default_manager.filter(pk__in=ids))
    return deleted


def delete_in_batches(
    rows: QuerySet[Any], delete: Callable[[QuerySet[Any]], int] | None = None
) -> int:
    """Delete the rows of a query without ever holding the database for more than BATCH of them.

    Args:
        rows: to delete.
        delete: how a batch is deleted, if others may be adding to what refers to it.
    """
    deleted = 0
    while ids := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):
        deleted += (delete or _delete)(rows.model._default_manager.filter(pk__in=ids))
    return deleted


def _delete(rows: QuerySet[Any]) -> int:
    with transaction.atomic():
        return rows.delete()[0]

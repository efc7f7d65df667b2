"""The life cycle of entries: expiry, the end of a runtime, ageing, purge, the feed of ended ones.

Each function changes at most `limit` entries in one transaction and returns their number, so that a
caller repeats it until nothing is due, and other writers get their turn. Due entries are found by
an index, never by reading all. Rows that another process is changing are left to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.core import addresses

from . import entries, rows, store
from .entries import DEAD, DISCONNECTED, Cause, Change, Entry, Kind
from .models import Hyperty, RegistryEntry, StatusChange, User
from .ownership import SESSION, SUBJECT

MAX_ROWS = 1000
MAX_SECONDS = 60.0
ENDED_AT_MOST = 100_000
"""Most entries of a kind that are kept after their end; those that ended first are deleted."""
DEAD_AFTER = timedelta(days=7)
"""What has not come back for a week is given up; until then it is only away."""
CHANGES_AT_MOST = 1_000_000


def repeat(step: Callable[[], int], seconds: float = MAX_SECONDS) -> int:
    """Repeat a step until nothing is left or the time is over; return the number of entries.

    What is left is for the next run of the schedule, so that runs do not pile up.
    """
    until = time.monotonic() + seconds
    total = 0
    while time.monotonic() < until:
        done = step()
        if not done:
            break
        total += done
    return total


def expire_due(limit: int = MAX_ROWS) -> int:
    """Disconnect expired entries."""
    now = timezone.now()
    return _end_all(
        lambda found: found.filter(expires_at__lte=now).order_by("expires_at"),
        now,
        Cause.EXPIRED,
        limit,
    )


def runtimes_gone(runtime_urls: Iterable[str], limit: int = MAX_ROWS) -> int:
    """Disconnect the entries of runtimes whose last session has closed."""
    named = {each for url in runtime_urls for each in (url, addresses.runtime_twin(url))}
    urls = sorted(filter(None, named))
    return _end_all(
        lambda found: found.filter(runtime_id__in=urls, expires_at__isnull=False).order_by("url"),
        timezone.now(),
        Cause.SESSION_CLOSED,
        limit,
    )


def owners_gone(live: Mapping[str, frozenset[str]], shares: bool) -> int:
    """Disconnect entries of runtimes with sessions whose owners have none; return their number.

    Args:
        live: runtime URL -> the marks of the owners of its sessions.
        shares: whether sessions of one runtime URL share what they registered without a subject.
    """
    runtimes = {
        each: marks
        for url, marks in live.items()
        for each in (url, addresses.runtime_twin(url))
        if each
    }
    kinds = (SUBJECT,) if shares else (SUBJECT, SESSION)
    done = 0
    for kind, model in rows.MODELS.items():
        entries_of: QuerySet[Any] = model._default_manager.all()
        found = entries_of.filter(runtime_id__in=list(runtimes), expires_at__isnull=False)
        left = [
            pk
            for pk, runtime, owner in found.values_list("pk", "runtime_id", "owner")
            if owner.startswith(kinds) and owner not in runtimes[runtime]
        ]
        for start in range(0, len(left), MAX_ROWS):
            done += disconnect_rows(kind, left[start : start + MAX_ROWS], Cause.SESSION_CLOSED)
    return done


def disconnect_rows(kind: Kind, ids: list[int], cause: Cause = Cause.OPERATOR) -> int:
    """Disconnect entries, those that the operator chose unless `cause` says otherwise."""
    return _end_all(
        lambda found: found.filter(pk__in=ids, expires_at__isnull=False).order_by("url"),
        timezone.now(),
        cause,
        MAX_ROWS,
        (kind,),
    )


def age(now: datetime, limit: int = MAX_ROWS) -> int:
    """Mark entries as dead that have been disconnected for DEAD_AFTER."""
    before = now - DEAD_AFTER
    done = 0
    for kind, model in rows.MODELS.items():
        with transaction.atomic():
            ids = list(
                _free(model)
                .filter(status=DISCONNECTED, ended_at__lte=before)
                .order_by("ended_at")
                .values_list("pk", "url")[: limit - done]
            )
            model._default_manager.filter(pk__in=[pk for pk, _ in ids]).update(
                status=DEAD, ended_at=now, news_at=None
            )
            store.publish(Change(kind, url, DISCONNECTED, DEAD, Cause.AGED, now) for _, url in ids)
        done += len(ids)
    return done


def purge(now: datetime, limit: int = MAX_ROWS) -> int:
    """Delete entries dead for PURGE_AFTER, and those beyond the limits.

    Users without entries and old history are deleted, too.
    """
    before = now - timedelta(seconds=settings.REGISTRY["PURGE_AFTER"])
    done = 0
    for model in rows.MODELS.values():
        with transaction.atomic():
            found = _free(model).filter(status=DEAD, ended_at__lte=before).order_by("ended_at")
            done += delete_rows(model, list(found.values_list("pk", flat=True)[:limit]))
            ended = model._default_manager.filter(status__in=(DISCONNECTED, DEAD))
            oldest = _free(model).filter(status__in=(DISCONNECTED, DEAD)).order_by("ended_at")
            beyond = min(limit, ended.count() - ENDED_AT_MOST)
            if beyond > 0:
                done += delete_rows(model, list(oldest.values_list("pk", flat=True)[:beyond]))
    kept = now - timedelta(seconds=settings.REGISTRY["HISTORY_KEPT"])
    old = StatusChange.objects.filter(at__lte=kept).order_by("at").values_list("pk", flat=True)
    done += StatusChange.objects.filter(pk__in=list(old[:limit])).delete()[0]
    beyond = min(limit, StatusChange.objects.count() - CHANGES_AT_MOST)
    if beyond > 0:
        first = StatusChange.objects.order_by("at").values_list("pk", flat=True)
        done += StatusChange.objects.filter(pk__in=list(first[:beyond])).delete()[0]
    return done


def delete_rows(model: type[RegistryEntry], ids: list[int]) -> int:
    """Delete entries for good, and users who have no others."""
    chosen = model._default_manager.filter(pk__in=ids)
    with transaction.atomic():
        users: set[Any] = set()
        if model is Hyperty:
            owned = Hyperty.objects.filter(pk__in=ids)
            users = set(owned.values_list("user_id", flat=True))
        count = chosen.delete()[0]
        named = User.objects.filter(user_id__in=users)
        if users and connection.features.has_select_for_update:
            # Who registers one of theirs meanwhile waits for the commit, and retries.
            list(named.select_for_update().order_by("pk").values_list("pk"))
        named.filter(hyperties=None).delete()
    return count


def take_news() -> list[Entry]:
    """The entries that have ended since the last call, each once.

    docs/reference/registry.md, section A2.
    """
    while expire_due() == MAX_ROWS:
        pass
    news: list[Entry] = []
    for model in rows.MODELS.values():
        with transaction.atomic():
            found = _free(model).filter(news_at__isnull=False).order_by("news_at")
            taken = list(found[: MAX_ROWS - len(news)])
            model._default_manager.filter(pk__in=[row.pk for row in taken]).update(news_at=None)
        news += [rows.entry(row) for row in taken]
    return news


def _end_all(
    due: Callable[[QuerySet[Any]], QuerySet[Any]],
    now: datetime,
    cause: Cause,
    limit: int,
    kinds: Iterable[Kind] = Kind,
) -> int:
    """End the entries that `due` selects, by kind; expiry leaves locked rows to the next round."""
    take = _free if cause is Cause.EXPIRED else store.locked
    done = 0
    for kind in kinds:
        model = rows.MODELS[kind]
        if done == limit or not due(model._default_manager.all()).exists():
            continue  # nothing is due, so no write lock is needed
        with transaction.atomic():
            ended = list(due(take(model)).values_list("pk", "url", "status")[: limit - done])
            model._default_manager.filter(pk__in=[pk for pk, _, _ in ended]).update(
                status=entries.DISCONNECTED, ended_at=now, expires_at=None, news_at=now
            )
            store.publish(Change(kind, u, was, DISCONNECTED, cause, now) for _, u, was in ended)
        done += len(ended)
    return done


def _free(model: type[RegistryEntry]) -> QuerySet[RegistryEntry]:
    """Rows that no other transaction is changing, locked when read."""
    found = model._default_manager.all()
    if connection.features.has_select_for_update_skip_locked:
        return found.select_for_update(skip_locked=True)
    return found

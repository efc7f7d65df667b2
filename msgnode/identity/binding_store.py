"""Bindings as rows, common to all workers: the unique name decides who came first.

A row is its runtime's while that has a session by the database, whichever worker that is with and
whatever is known of it here; then, or after its end, it is whoever's asks next. Every change is one
row's, in the writer's transaction; of two workers that want one row the second waits for the first.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from msgnode import models
from msgnode.bus.writing import Call, Writer
from msgnode.core.errors import Unavailable

from .bindings import Binding, Found

_TRIES = 3
_LAST = 4_102_444_800.0
"""Expiry is capped at 2099: a token may claim any `exp`."""


class BindingStore:
    """Implements the Shared of bindings. `limit` is how many a runtime may have."""

    def __init__(self, writer: Writer, limit: int) -> None:
        self._writer = writer
        self._limit = limit

    def settle(self, wanted: Sequence[Binding]) -> Future[Found]:
        """Bind what is not bound yet; for each, what is in force after the commit."""
        found: list[Binding | None] = []

        def settle() -> None:
            found[:] = [self._settled(each) for each in wanted]

        return self._writer.submit(Call(settle), result=found)

    def look(self, name: str) -> Future[Found]:
        """What a name is bound to, by the database."""
        found: list[Binding | None] = []

        def look() -> None:
            row = models.IdentityBinding.objects.filter(name=name).first()
            found[:] = [_binding(row) if row is not None and _is_in_force(row) else None]

        return self._writer.submit(Call(look), result=found)

    # --- in the writer's thread -------------------------------------------------------------------

    def _settled(self, wanted: Binding) -> Binding | None:
        rows = models.IdentityBinding.objects
        for _ in range(_TRIES):
            row = rows.select_for_update().filter(name=wanted.name).first()
            if row is not None and row.value == wanted.value:
                if row.ends_at < _moment(wanted.ends):
                    rows.filter(name=wanted.name).update(ends_at=_moment(wanted.ends))
                return wanted
            if row is not None and _is_in_force(row):
                return _binding(row)
            own = rows.filter(runtime_url=wanted.runtime_url, ends_at__gt=timezone.now())
            if own.count() >= self._limit:
                return None
            fields = {
                "value": wanted.value,
                "runtime_url": wanted.runtime_url,
                "ends_at": _moment(wanted.ends),
            }
            if row is not None:
                rows.filter(name=wanted.name).update(**fields)
                return wanted
            new = models.IdentityBinding(name=wanted.name, **fields)
            rows.bulk_create([new], ignore_conflicts=True)  # the next look says who was first
        raise Unavailable("Many ask for this token at once: try again.")


def purge(now: datetime, at_once: int) -> int:
    """Delete the rows that bind nothing any more, so many in a transaction; how many they were."""
    deleted = 0
    while ids := list(_over(now).values_list("pk", flat=True)[:at_once]):
        with transaction.atomic():  # asked again: a runtime may have come back
            number = _over(now).filter(pk__in=ids).delete()[0]
        if not number:
            break
        deleted += number
    return deleted


def _over(now: datetime) -> QuerySet[models.IdentityBinding]:
    open_ = _open_sessions().filter(runtime_url=OuterRef("runtime_url"))
    return models.IdentityBinding.objects.filter(Q(ends_at__lt=now) | ~Exists(open_))


def _is_in_force(row: models.IdentityBinding) -> bool:
    if row.ends_at <= timezone.now():
        return False
    return _open_sessions().filter(runtime_url=row.runtime_url).exists()


def _open_sessions() -> QuerySet[models.Session]:
    return models.Session.objects.exclude(state=models.Session.State.CLOSED).order_by()


def _binding(row: models.IdentityBinding) -> Binding:
    return Binding(row.name, row.value, row.runtime_url, row.ends_at.timestamp())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(seconds, _LAST), UTC)

"""Bindings as rows, shared by all workers: the unique name decides who was first.

A row belongs to its runtime while that has a session in the database, at whichever worker; after
that, or after its expiry, it goes to the next who asks. Every change is of one row, in the writer's
transaction; if two workers want the same row, the second waits for the first.
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
    """The Shared of bindings. `limit` is how many a runtime may have."""

    def __init__(self, writer: Writer, limit: int) -> None:
        self._writer = writer
        self._limit = limit

    def settle(self, wanted: Sequence[Binding]) -> Future[Found]:
        """Bind what is free; return for each the binding in force after the commit."""
        found: list[Binding | None] = []

        def settle() -> None:
            found[:] = [self._settled(each) for each in wanted]

        return self._writer.submit(Call(settle), result=found)

    def look(self, name: str) -> Future[Found]:
        """The binding of a name, according to the database."""
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
            rows.bulk_create([new], ignore_conflicts=True)  # reading again tells who was first
        raise Unavailable("Too many requests for this token at once: try again.")


def purge(now: datetime, at_once: int) -> int:
    """Delete expired rows, so many per transaction; return their number."""
    deleted = 0
    while ids := list(_over(now).values_list("pk", flat=True)[:at_once]):
        with transaction.atomic():  # checked again, because a runtime may have returned
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

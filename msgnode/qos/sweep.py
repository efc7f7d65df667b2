"""Ends reservations for reasons other than requests: time, disuse, closed sessions, quotas, losses.

A sweep ends at most LIMIT of each kind, in one transaction; the rest follows in the next one.
Whatever the reason, only the row is changed here: notifications and disconnections are derived from
the rows, so that neither is lost with a worker. All functions block.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import DateTimeField, Exists, F, OuterRef, Q, QuerySet, Subquery

from msgnode.models import Session

from . import bookings, turn_state
from .capacity import OPEN
from .models import Reservation, TurnServer

LIMIT = 200
Reason = Reservation.Reason

_STATUS = {Reason.RELEASED: "released", Reason.EXCEEDED: "exceeded", Reason.LOST: "lost"}


class Ended(NamedTuple):
    """An ended reservation whose owner is to be notified."""

    id: str
    session_id: str
    runtime_url: str
    status: str
    reason: str
    lasted: float = 0.0


def sweep(epoch: str, unused: float, grace: float) -> int:
    """End what is over; how many reservations that were.

    Args:
        epoch: of the worker that supervises.
        unused: seconds that a reservation may be held without being used.
        grace: seconds that it outlives its session.

    Raises:
        NotHolder: another worker supervises now.
    """
    with transaction.atomic():
        turn_state.check_claim(epoch)
        at = bookings.now()
        rows = Reservation.objects.filter(state__in=OPEN)
        _follow_subjects(rows)
        return (
            _end(rows.filter(expires_at__lte=at), Reason.EXPIRED, at)
            + _end(_exceeded(rows), Reason.EXCEEDED, at)
            + _end(rows.filter(server__state=TurnServer.State.DOWN), Reason.LOST, at)
            + _end(_without_session(rows, at, grace), Reason.CLOSED, at)
            + _end(_unused(rows, at, unused), Reason.UNUSED, at)
        )


def _end(rows: QuerySet[Reservation], reason: Reason, at: datetime) -> int:
    found = list(rows.order_by("pk").values_list("pk", flat=True)[:LIMIT])
    return bookings.end(Reservation.objects.filter(pk__in=found), reason, at) if found else 0


def _exceeded(rows: QuerySet[Reservation]) -> QuerySet[Reservation]:
    return rows.filter(customer__quota__isnull=False, customer__used__gte=F("customer__quota"))


def _unused(rows: QuerySet[Reservation], at: datetime, unused: float) -> QuerySet[Reservation]:
    """Held for too long; where the server can be asked, only if it was since and knew nothing."""
    grace = timedelta(seconds=unused)
    held = rows.filter(state=Reservation.State.HELD, created_at__lte=at - grace)
    return held.filter(
        Q(server=None)
        | Q(server__command_line="")
        | Q(server__polled_at__gte=F("created_at") + grace)
    )


def _live() -> QuerySet[Session]:
    return Session.objects.exclude(state=Session.State.CLOSED)


def _follow_subjects(rows: QuerySet[Reservation]) -> None:
    """A subject whose session has ended, but who has another one here, keeps its reservations."""
    another = (
        _live()
        .filter(issuer=OuterRef("issuer"), subject=OuterRef("subject"))
        .order_by("-opened_at")
    )
    moved = (
        rows.exclude(subject="")
        .exclude(Exists(_live().filter(pk=OuterRef("session_id"))))
        .annotate(
            to_session=Subquery(another.values("pk")[:1]),
            to_runtime=Subquery(another.values("runtime_url")[:1]),
        )
        .filter(to_session__isnull=False)
    )
    for row in moved[:LIMIT]:
        Reservation.objects.filter(pk=row.pk).update(
            session_id=row.to_session, runtime_url=row.to_runtime
        )


def _without_session(
    rows: QuerySet[Reservation], at: datetime, grace: float
) -> QuerySet[Reservation]:
    """Those whose session ended longer ago than `grace`, or whose row is already deleted."""
    mine = Session.objects.filter(pk=OuterRef("session_id"))
    ended = Subquery(mine.values("closed_at")[:1], output_field=DateTimeField())
    return (
        rows.exclude(Exists(_live().filter(pk=OuterRef("session_id"))))
        .annotate(session_ended=ended)
        .filter(Q(session_ended=None) | Q(session_ended__lte=at - timedelta(seconds=grace)))
    )


def forget(epoch: str, kept: timedelta) -> int:
    """Delete some of what ended longer ago, is cut and told; how many reservations that were.

    Raises:
        NotHolder: another worker supervises now.
    """
    with transaction.atomic():
        turn_state.check_claim(epoch)
        old = (
            Reservation.objects.filter(
                state=Reservation.State.ENDED, ended_at__lte=bookings.now() - kept
            )
            .exclude(told_at=None)
            .exclude(server__isnull=False, cut_at=None)
        )
        found = list(old.order_by("ended_at").values_list("pk", flat=True)[:LIMIT])
        if found:
            Reservation.objects.filter(pk__in=found).delete()
        return len(found)


def to_tell() -> list[Ended]:
    """Ended reservations whose owners were not notified yet, the oldest first."""
    rows = Reservation.objects.filter(state=Reservation.State.ENDED, told_at=None)
    return [
        Ended(
            row.pk,
            row.session_id.hex,
            row.runtime_url,
            _STATUS.get(Reason(row.reason), "ended"),
            row.reason,
            (row.ended_at - row.created_at).total_seconds() if row.ended_at else 0.0,
        )
        for row in rows.order_by("ended_at")[:LIMIT]
    ]


def told(ids: list[str]) -> None:
    """Mark reservations whose owners were notified or are gone."""
    if ids:
        Reservation.objects.filter(pk__in=ids).update(told_at=bookings.now())

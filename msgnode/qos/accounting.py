"""Stores the traffic of allocations: in their rows, reservations, customers and days. Blocks.

A row has the bytes of its allocation's whole life so far; the difference to its previous value is
added to the others, in the same transaction. So writing an entry twice adds nothing, and the final
totals correct what was missed. Only the supervisor writes.

A server may report anything. No sum falls below zero (a day is not charged for what the day before
had too much) or grows beyond what the database can store: one entry that could not be written would
stop all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest, Least

from . import bookings, credentials, lease
from .capacity import OPEN
from .ledger import Entry
from .models import Customer, RelayAllocation, Reservation, Usage

AT_ONCE = 500
_MOST = 2**62
Bytes = tuple[int, int]
Known = tuple[str, int, int]
"""The key of a row, and its bytes."""


class Written(NamedTuple):
    """What the database has now: versions of entries by key, and bytes added by traffic class."""

    versions: dict[str, int]
    added: dict[str, Bytes]


def look_up(entries: Sequence[Entry]) -> dict[str, Known]:
    """The rows of allocations whose beginning an earlier supervisor has seen, by entry."""
    found = {}
    for entry in entries:
        rows = RelayAllocation.objects.filter(user=entry.user, number=entry.number)
        row = rows.order_by("-id").first()
        found[entry.key] = (row.key, row.received, row.sent) if row else (entry.key, 0, 0)
    return found


def write(epoch: str, entries: Sequence[Entry]) -> Written:
    """Write entries. Raises NotHolder."""
    added: dict[str, Bytes] = {}
    with transaction.atomic():
        lease.check(epoch)
        at = bookings.now()
        ids = {credentials.reservation_of(entry.user) for entry in entries}
        found = Reservation.objects.select_related("customer").in_bulk(list(ids))
        for entry in sorted(entries, key=lambda each: each.key):
            reservation = found.get(credentials.reservation_of(entry.user))
            if reservation is not None:
                more = _write(entry, reservation, at)
                before = added.get(reservation.traffic_class, (0, 0))
                added[reservation.traffic_class] = (before[0] + more[0], before[1] + more[1])
    return Written({entry.key: entry.version for entry in entries}, added)


def _write(entry: Entry, reservation: Reservation, at: datetime) -> Bytes:
    row = RelayAllocation.objects.filter(key=entry.key).first() or RelayAllocation(
        key=entry.key,
        reservation=reservation,
        user=entry.user,
        number=entry.number,
        started_at=at,
    )
    received, sent = entry.carried
    more = (received - row.received, sent - row.sent)
    row.received, row.sent = received, sent
    row.is_incomplete = entry.is_incomplete
    if entry.ended_at and row.ended_at is None:
        row.ended_at = at
    row.save()
    _add(reservation, more, at, is_incomplete=entry.is_incomplete)
    _use(reservation, has_ended=bool(entry.ended_at))
    return more


def _add(reservation: Reservation, more: Bytes, at: datetime, *, is_incomplete: bool) -> None:
    """Add bytes (negative if the reports exceed the totals) to everybody who has used them."""
    rows = Reservation.objects.filter(pk=reservation.pk)
    rows.update(received=_plus("received", more[0]), sent=_plus("sent", more[1]))
    others = RelayAllocation.objects.filter(reservation=reservation, is_incomplete=True)
    rows.update(is_incomplete=is_incomplete or others.exists())
    if reservation.customer is None or not (any(more) or is_incomplete):
        return
    customer = Customer.objects.filter(pk=reservation.customer.pk)
    customer.update(used=_plus("used", more[0] + more[1]))
    day, _ = Usage.objects.get_or_create(customer=reservation.customer, day=at.date())
    days = Usage.objects.filter(pk=day.pk)
    days.update(received=_plus("received", more[0]), sent=_plus("sent", more[1]))
    if is_incomplete:
        days.update(is_incomplete=True)


def _plus(column: str, more: int) -> Combinable:
    """A sum with more in it, or less."""
    return Greatest(Least(F(column), Value(_MOST)) + more, Value(0))


def _use(reservation: Reservation, *, has_ended: bool) -> None:
    """Mark a reservation with an allocation as used; if it has ended, its allocation is ended."""
    rows = Reservation.objects.filter(pk=reservation.pk)
    rows.filter(state=Reservation.State.HELD).update(state=Reservation.State.ACTIVE)
    if not has_ended:
        rows.filter(state=Reservation.State.ENDED).update(cut_at=None)


def mark_gap(epoch: str) -> None:
    """Note a gap in the reports: running allocations are incomplete until their totals come."""
    with transaction.atomic():
        lease.check(epoch)
        running = RelayAllocation.objects.filter(ended_at=None)
        Reservation.objects.filter(pk__in=running.values("reservation"), state__in=OPEN).update(
            is_incomplete=True
        )
        running.update(is_incomplete=True)

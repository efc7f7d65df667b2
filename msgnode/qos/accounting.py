"""Stores the traffic of allocations: in their rows, reservations, customers and days. Blocks.

A row has the bytes of its allocation's whole life so far; the difference to its previous value is
added to the others, in the same transaction. So writing an entry twice adds nothing, and the final
totals correct what was missed. Only the supervisor writes.

A server may report anything. No sum falls below zero (a day is not charged for what the day before
had too much) or grows beyond what the database can store: one entry that could not be written would
stop all the others.

The ledger has the traffic of each allocation, as far as this worker has received reports. An entry
has the bytes of the reports since it was made, and at the end the totals, which replace
them. If an allocation's beginning was missed, or the node did not listen during its life, only the
totals are certain: until then it is incomplete.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest, Least

from . import bookings, credentials, turn_state
from .capacity import OPEN
from .models import Customer, RelayAllocation, Reservation, Usage
from .statistics import MOST, Event, Kind

MAX_ENTRIES = 20_000
KEPT = 30.0
"""Seconds for which an ended allocation is kept for its totals."""


@dataclass(slots=True)
class Entry:
    """One allocation.

    Attributes:
        received, sent: bytes of the reports.
        total: bytes of its whole life, once it has ended.
        is_new: whether its beginning was seen.
        base: the values of its row when this worker first saw it.
        version: counts changes; `written` is the one in the database.
    """

    user: str
    number: str
    is_new: bool
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    received: int = 0
    sent: int = 0
    total: tuple[int, int] | None = None
    is_incomplete: bool = False
    ended_at: float = 0.0
    base: tuple[int, int] | None = None
    version: int = 1
    written: int = 0

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes from and to the peers, as far as known, and as far as they can be true."""
        if self.total is not None:
            return self.total
        received, sent = self.base or (0, 0)
        return min(received + self.received, MOST), min(sent + self.sent, MOST)


class Ledger:
    """The entries of one supervisor."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        self.past: list[Entry] = []
        self.lost = 0

    def note(self, event: Event, now: float) -> None:
        """Take in an event. `now` is in seconds on a monotonic clock."""
        name = (event.user, event.number)
        entry = self.entries.get(name)
        if event.kind is Kind.NEW and entry is not None:  # the server has begun to count anew
            if entry.version != entry.written:
                self.past.append(entry)
            del self.entries[name]
            entry = None
        if entry is None:
            if len(self.entries) + len(self.past) >= MAX_ENTRIES:
                self.lost += 1
                return
            is_new = event.kind is Kind.NEW
            entry = self.entries[name] = Entry(*name, is_new, is_incomplete=not is_new)
        if event.kind is Kind.REPORT and entry.total is None:
            entry.received += event.received
            entry.sent += event.sent
        elif event.kind is Kind.TOTAL:
            entry.total = (event.received, event.sent)
            entry.is_incomplete = False
            entry.ended_at = entry.ended_at or now
        elif event.kind is Kind.ENDED:
            entry.ended_at = now
        entry.version += 1

    def gap(self) -> None:
        """Note a gap in the reports."""
        for entry in self.entries.values():
            if entry.total is None:
                entry.is_incomplete = True
                entry.version += 1

    def unwritten(self, most: int) -> list[Entry]:
        """Entries that the database does not have as they are."""
        changed = [each for each in self.entries.values() if each.version != each.written]
        return [*self.past, *changed][:most]

    def strangers(self, most: int) -> list[Entry]:
        """Entries to write whose beginning was missed, and whose row is unknown."""
        return [each for each in self.unwritten(most) if not each.is_new and each.base is None]

    def adopt(self, rows: Mapping[str, tuple[str, int, int]]) -> None:
        """What the database has of strangers: the key of the row and its bytes, by entry."""
        for entry in [*self.past, *self.entries.values()]:
            if entry.base is None and entry.key in rows:
                entry.key, *base = rows[entry.key]
                entry.base = (base[0], base[1])

    def written(self, versions: Mapping[str, int]) -> None:
        """The database has these versions, by key."""
        for entry in [*self.past, *self.entries.values()]:
            if entry.key in versions:
                entry.written = versions[entry.key]
        self.past = [each for each in self.past if each.version != each.written]

    def forget(self, now: float) -> None:
        """Drop ended and written entries, whose totals have come or will not come."""
        for name, entry in list(self.entries.items()):
            is_over = entry.ended_at and (entry.total or now - entry.ended_at > KEPT)
            if is_over and entry.version == entry.written:
                del self.entries[name]


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
        turn_state.check_claim(epoch)
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
    used = Reservation.objects.filter(pk=reservation.pk)
    bookings.mark_used(used, is_running=not entry.ended_at)
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


def mark_gap(epoch: str) -> None:
    """Note a gap in the reports: running allocations are incomplete until their totals come."""
    with transaction.atomic():
        turn_state.check_claim(epoch)
        running = RelayAllocation.objects.filter(ended_at=None)
        Reservation.objects.filter(pk__in=running.values("reservation"), state__in=OPEN).update(
            is_incomplete=True
        )
        running.update(is_incomplete=True)

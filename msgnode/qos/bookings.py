"""Bookings in the database: reserve, renew, release, end. Blocks: not for the event loop.

The bookings of a server are the sum of its reservations that have not ended. Whoever books locks
the servers' rows first, always in the order of their keys, so that two workers never book the same
capacity (SQLite has one writer, with the same effect). A refused command changes nothing, and
affects no other one of its group.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from msgnode.core.errors import BadMessage, Forbidden, NodeError, NotFound, TooMany
from msgnode.storage.fence import Check, unfenced

from . import credentials
from .broker import Order, Owner
from .capacity import OPEN, Room, locks_rows
from .models import Customer, Reservation, TrafficClass

MAX_GROUP = 100
CREDENTIAL_SECONDS = 3600
"""Also how long a secret that was replaced is still kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much and how long; times in seconds.

    Attributes:
        per_session: open reservations of a session.
        per_subject: the same of a verified subject.
        seconds: of a reservation that does not say how long.
        max_seconds: of one that does.
        credential_seconds: of a credential, at most.
    """

    per_session: int = 4  # a call with a second one that waits
    per_subject: int = 20
    seconds: int = 3600
    max_seconds: int = 24 * 3600
    credential_seconds: int = CREDENTIAL_SECONDS


@dataclass(frozen=True, slots=True)
class Book:
    """A new reservation; `elsewhere` if a broker elsewhere has the servers."""

    order: Order
    owner: Owner
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Extend:
    """A later end."""

    id: str
    seconds: int
    owner: Owner


@dataclass(frozen=True, slots=True)
class Free:
    """The owner's word that it has ended."""

    id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Settle:
    """The answer of a remote broker: the id and a URL, or that it refused."""

    id: str
    foreign_id: str = ""
    is_refused: bool = False


Command = Book | Extend | Free | Settle


def now() -> datetime:
    """The time by the database's clock, on which all workers agree."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def apply(commands: Sequence[Command], limits: Limits, check: Check = unfenced) -> list[Any]:
    """Carry out a group in one transaction: for each the row, or the NodeError that refuses it."""
    outcomes: list[Any] = []
    with transaction.atomic():
        check()
        at = now()
        books = any(isinstance(each, Book) and not each.elsewhere for each in commands)
        room = Room.locked() if books else Room()
        for command in commands:
            try:
                outcomes.append(_carry_out(command, room, limits, at))
            except NodeError as refusal:
                outcomes.append(refusal)
    return outcomes


def _carry_out(command: Command, room: Room, limits: Limits, at: datetime) -> Any:
    match command:
        case Book(order, owner, elsewhere):
            return _book(order, owner, None if elsewhere else room, limits, at)
        case Extend(id_, seconds, owner):
            return _extend(_open(id_, owner, locks=True), seconds, owner, limits, at)
        case Free(id_, owner):
            row = _open(id_, owner)
            if not end(Reservation.objects.filter(pk=row.pk), Reservation.Reason.RELEASED, at):
                raise NotFound(f"The reservation {id_} has ended.")
            return row
        case Settle(id_, _, True):
            end(Reservation.objects.filter(pk=id_), Reservation.Reason.REFUSED, at, told_at=at)
            return None
        case Settle(id_, foreign_id):
            rows = Reservation.objects.filter(pk=id_, state__in=OPEN)
            rows.update(foreign_id=foreign_id, state=Reservation.State.ACTIVE)
            return None


def _book(
    order: Order, owner: Owner, room: Room | None, limits: Limits, at: datetime
) -> Reservation:
    traffic_class, bitrate = _size(order)
    customer = None if room is None else _customer(order.customer)
    _check_number(owner, limits)
    end_ = at + timedelta(seconds=_seconds(order.seconds, limits))
    row = Reservation(
        id=credentials.new_id(),
        customer=customer,
        server=None if room is None else room.take(traffic_class, bitrate, order.near),
        traffic_class=traffic_class,
        bitrate=bitrate,
        session_id=uuid.UUID(owner.session_id),
        runtime_url=owner.runtime_url,
        issuer=owner.issuer,
        subject=owner.subject,
        client_name=order.client_name,
        about=order.about,
        created_at=at,
        expires_at=end_,
    )
    _issue(row, limits, at)
    row.save(force_insert=True)
    return row


def _size(order: Order) -> tuple[str, int]:
    """The class of a reservation, which is that of its greatest flow, and its bandwidth."""
    named = (order.traffic_class,) if order.traffic_class else order.media
    known = {row.name: row.bitrate for row in TrafficClass.objects.all()}
    for name in {*named, *order.media}:
        if name not in known:
            raise BadMessage(f"There is no traffic class {name}; there are {', '.join(known)}.")
    greatest = max(named, key=lambda name: known[name])
    flows = order.media or named
    most = sum(known[each] for each in flows)
    if order.traffic_class:
        most = known[greatest] * len(flows)
    if order.bitrate > most:
        raise BadMessage(
            f"`bitrate` is at most {most} for {len(flows)} flow(s) of class {greatest}."
        )
    return greatest, order.bitrate or most


def _customer(name: str) -> Customer | None:
    if not name:
        return None
    customer = Customer.objects.filter(name=name).first()
    if customer is None:
        raise NotFound(f"There is no customer {name}.")
    if not customer.is_enabled:
        raise Forbidden(f"The customer {name} may not reserve at the moment.")
    if is_exceeded(customer):
        raise Forbidden(f"The quota of the customer {name} is used up.")
    return customer


def is_exceeded(customer: Customer) -> bool:
    """Whether nothing is left of its quota."""
    return customer.quota is not None and customer.used >= customer.quota


def _check_number(owner: Owner, limits: Limits) -> None:
    rows = Reservation.objects.filter(state__in=OPEN)
    if rows.filter(session_id=uuid.UUID(owner.session_id)).count() >= limits.per_session:
        raise TooMany(f"A session may have {limits.per_session} reservations at once.")
    if owner.subject:
        mine = rows.filter(issuer=owner.issuer, subject=owner.subject)
        if mine.count() >= limits.per_subject:
            raise TooMany(f"A user may have {limits.per_subject} reservations at once.")


def _seconds(asked: int, limits: Limits) -> int:
    if asked > limits.max_seconds:
        raise BadMessage(f"A reservation lasts at most {limits.max_seconds} seconds.")
    return asked or limits.seconds


def _issue(row: Reservation, limits: Limits, at: datetime) -> None:
    """Note the user name of a new credential; those that are over are forgotten."""
    end_ = min(row.expires_at, at + timedelta(seconds=limits.credential_seconds))
    past = at.timestamp()
    live = [user for user in row.users if credentials.end_of(user) > past]
    row.users = [*live[-20:], credentials.username(row.id, int(end_.timestamp()))]


def _extend(
    row: Reservation, seconds: int, owner: Owner, limits: Limits, at: datetime
) -> Reservation:
    if row.customer is not None and is_exceeded(row.customer):
        raise Forbidden(f"The quota of the customer {row.customer} is used up.")
    later = at + timedelta(seconds=_seconds(seconds, limits))
    row.expires_at = max(row.expires_at, later)
    row.session_id = uuid.UUID(owner.session_id)  # of the same subject, if it is another one
    row.runtime_url = owner.runtime_url
    _issue(row, limits, at)
    row.save(update_fields=["expires_at", "session_id", "runtime_url", "users"])
    return row


def _open(id_: str, owner: Owner, locks: bool = False) -> Reservation:
    row = find(id_, owner, locks=locks)
    if row.state == Reservation.State.ENDED:
        raise NotFound(f"The reservation {id_} has ended.")
    return row


def find(id_: str, owner: Owner, locks: bool = False) -> Reservation:
    """The owner's reservation, locked until the transaction ends if asked for.

    Raises:
        NotFound: there is none.
        Forbidden: it is another's.
    """
    rows = Reservation.objects.select_related("server", "customer").filter(pk=id_)
    if locks and locks_rows():
        rows = rows.select_for_update(of=("self",))
    row = rows.first()
    if row is None:
        raise NotFound(f"There is no reservation {id_[:40]}.")
    if not owns(row, owner):
        raise Forbidden("The reservation belongs to another session.")
    return row


def owns(row: Reservation, owner: Owner) -> bool:
    """Whether it is theirs: of the subject that was verified, else of the session."""
    if row.subject:
        return (row.issuer, row.subject) == (owner.issuer, owner.subject)
    return row.session_id == uuid.UUID(owner.session_id)


def open_of(owner: Owner) -> list[Reservation]:
    """The owner's reservations that have not ended."""
    mine = Q(subject="", session_id=uuid.UUID(owner.session_id))
    if owner.subject:
        mine |= Q(issuer=owner.issuer, subject=owner.subject)
    return list(Reservation.objects.filter(mine, state__in=OPEN).select_related("server")[:1000])


def mark_used(rows: Any, *, is_running: bool) -> None:
    """Note that a server has, or had, allocations for these reservations."""
    rows.filter(state=Reservation.State.HELD).update(state=Reservation.State.ACTIVE)
    if is_running:  # of one that has ended they are still to be ended
        rows.filter(state=Reservation.State.ENDED).update(cut_at=None)


def end(rows: Any, reason: Reservation.Reason, at: datetime, **more: Any) -> int:
    """End those of the rows that have not ended; how many those were."""
    changed: int = rows.filter(state__in=OPEN).update(
        state=Reservation.State.ENDED, reason=reason, ended_at=at, **more
    )
    return changed

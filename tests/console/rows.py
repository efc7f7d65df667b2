"""Rows for the lists of the console: as many sessions, each with an address and a subscription."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import AutoField, Field, Model
from django.utils import timezone

from msgnode.models import Allocation, Session, Subscription

State = Session.State
T = TypeVar("T")


def fill(number: int) -> list[Session]:
    """`number` sessions, allocations and subscriptions; every fifth session is detached."""
    now = timezone.now()
    sessions = [
        Session(
            runtime_url=f"runtime://localhost/user{n:06d}",
            token_hash=uuid.uuid4().hex,
            state=State.DETACHED if n % 5 == 0 else State.OPEN,
            handshake="ws" if n % 3 else "stub-connect",
            remote_address=f"10.0.{n % 250}.{n % 200}",
            subject=f"subject-{n}",
            opened_at=now - timedelta(seconds=n),
        )
        for n in range(number)
    ]
    for some in _by_thousand(sessions):
        Session.objects.bulk_create(some)
        Allocation.objects.bulk_create(
            Allocation(
                address=f"hyperty://localhost/{uuid.uuid4()}",
                scheme="hyperty",
                session=session,
                allocation_key=f"key-{session.subject}",
            )
            for session in some
        )
        Subscription.objects.bulk_create(
            Subscription(session=session, address=f"comm://localhost/{session.id}/changes")
            for session in some
        )
    return sessions


def multiply(row: Model, number: int) -> None:
    """`number` rows more like this one, which differ where no two may be the same."""
    meta = type(row)._meta
    sets = [*meta.unique_together, *(getattr(each, "fields", ()) for each in meta.constraints)]
    named = {name for each in sets for name in each}
    differ = [
        field
        for field in meta.concrete_fields
        if (field.unique or field.name in named) and not (field.choices or field.is_relation)
    ]
    values = {each.attname: getattr(row, each.attname) for each in meta.concrete_fields}
    for some in _by_thousand(range(number)):
        type(row)._default_manager.bulk_create(
            type(row)(**values | {each.attname: _another(each, values, n) for each in differ})
            for n in some
        )


def _another(field: Field[Any, Any], values: dict[str, Any], number: int) -> Any:
    """A value of this field that no other number gets."""
    value = values[field.attname]
    if isinstance(field, AutoField):
        return None
    if isinstance(value, int | float):
        return value + 1 + number
    if isinstance(value, datetime):
        return value - timedelta(hours=1 + number)
    if isinstance(value, uuid.UUID):
        return uuid.uuid4()
    return f"{value}{number:06d}"[-(field.max_length or 600) :]


def _by_thousand(rows: Iterable[T]) -> list[list[T]]:
    iterator = iter(rows)
    return list(iter(lambda: list(itertools.islice(iterator, 1000)), []))

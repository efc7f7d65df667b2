"""Rows for the lists of the console: as many sessions, each with an address and a subscription."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from django.db.models import Model
from django.utils import timezone

from msgnode.models import Allocation, AuditEntry, Session, Subscription
from policies.models import DecisionEntry
from registry.models import Hyperty, User

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


def fill_logs(number: int) -> None:
    """`number` decisions, changes and registrations."""
    now = timezone.now()
    User.objects.create(user_id="user://localhost/u", idp_identifier="u")
    kinds: tuple[Callable[[int], Model], ...] = (
        lambda n: DecisionEntry(
            at=now, direction="in", effect="deny", passes=False, version=1, type="read", sender="a",
            to="b", path="S/P/R", message='{"id":1,"type":"read","from":"a","to":"b","body":{}}',
        ),
        lambda n: AuditEntry(actor="operator", action="ban.add", object=str(n)),
        lambda n: Hyperty(
            url=f"hyperty://localhost/{n:06d}", status="live", expires=3600, started_at=now,
            modified_at=now, user_id="user://localhost/u", descriptor="x", expires_at=now,
        ),
    )  # fmt: skip
    for kind in kinds:
        for some in _by_thousand(range(number)):
            made = [kind(n) for n in some]
            type(made[0])._default_manager.bulk_create(made)


def _by_thousand(rows: Iterable[T]) -> list[list[T]]:
    iterator = iter(rows)
    return list(iter(lambda: list(itertools.islice(iterator, 1000)), []))

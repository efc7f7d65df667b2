"""Rows for the lists of the console: as many sessions, each with an address and a subscription."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta

from django.utils import timezone

from msgnode.models import Allocation, Session, Subscription

State = Session.State


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


def _by_thousand(rows: list[Session]) -> list[list[Session]]:
    iterator = iter(rows)
    return list(iter(lambda: list(itertools.islice(iterator, 1000)), []))

"""Operators' changes to the running node: the rows, the audit and the message to the workers.

Each function changes the database and posts a control message in one transaction; the workers apply
it within a second, and one that starts later reads the rows. Bulk work is done in batches, because
SQLite has one writer and the workers' commits must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from django.db import transaction
from django.utils import timezone

from msgnode.models import AddressPool, Allocation, PoolAddress, Session, Subscription
from msgnode.storage.alarms import POOL_EXHAUSTED, clear_alarm
from msgnode.storage.control import post

from .audit import fields_of, note

PORTION = 50
LARGEST_TRANSACTION = 1_000
Row = TypeVar("Row")


def end_sessions(sessions: Iterable[Session], actor: str, reason: str, *, may_return: bool) -> int:
    """End sessions and free what they hold; `may_return` tells their runtimes to reconnect."""
    ended = 0
    for portion in _portions(sessions):
        with transaction.atomic():
            ids = [session.pk for session in portion]
            live = Session.objects.select_for_update().exclude(state=Session.State.CLOSED)
            for session in live.filter(pk__in=ids):
                _end(session, actor, reason, may_return)
                ended += 1
    return ended


def _end(session: Session, actor: str, reason: str, may_return: bool) -> None:
    before = fields_of(session)
    before["allocations"], _ = Allocation.objects.filter(session=session).delete()
    before["subscriptions"], _ = Subscription.objects.filter(session=session).delete()
    session.state = Session.State.CLOSED
    session.closed_at = timezone.now()
    session.close_reason = (reason or "ended by the operator")[:100]
    session.save(update_fields=["state", "closed_at", "close_reason"])
    after = {**fields_of(session), "allocations": 0, "subscriptions": 0, "may_return": may_return}
    note(actor, "session.end", session, before, after)
    post(
        "session.end",
        session=session.pk.hex,
        reason=session.close_reason,
        may_return=may_return,
    )


def delete_allocations(allocations: Iterable[Allocation], actor: str) -> int:
    """Take addresses back from their sessions."""
    return _delete(allocations, actor, "allocation.delete")


def delete_subscriptions(subscriptions: Iterable[Subscription], actor: str) -> int:
    """End subscriptions."""
    return _delete(subscriptions, actor, "subscription.delete")


def _delete(rows: Iterable[Allocation | Subscription], actor: str, kind: str) -> int:
    number = 0
    for portion in _portions(rows):
        with transaction.atomic():
            for row in portion:
                note(actor, kind, row, fields_of(row), {})
                post(kind, session=row.session_id.hex, address=row.address)
                row.delete()
                number += 1
    return number


@transaction.atomic
def add_subscription(subscription: Subscription, actor: str) -> None:
    """Subscribe a session to an address."""
    subscription.save()
    note(actor, "subscription.add", subscription, {}, fields_of(subscription))
    post(
        "subscription.add",
        session=subscription.session_id.hex,
        address=subscription.address,
    )


def fill_pool(pool: AddressPool, addresses: Sequence[str], is_for_visitors: bool = False) -> int:
    """Put addresses into a pool; how many were new. One that any pool has stays as it is."""
    before = pool.addresses.count()
    for start in range(0, len(addresses), LARGEST_TRANSACTION):
        PoolAddress.objects.bulk_create(
            (
                PoolAddress(pool=pool, address=address, for_visitors=is_for_visitors)
                for address in addresses[start : start + LARGEST_TRANSACTION]
            ),
            ignore_conflicts=True,
        )
    added = pool.addresses.count() - before
    if added and not is_for_visitors:
        clear_alarm(POOL_EXHAUSTED, pool.scheme)
    return added


def publish_pools() -> None:
    """The schemes that have a pool now."""
    post("pools.changed", schemes=list(AddressPool.objects.values_list("scheme", flat=True)))


def publish_bans() -> None:
    """The workers read the bans again, and end the sessions that new ones meet."""
    post("bans.changed")


def _portions(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while portion := list(islice(iterator, PORTION)):
        yield portion

"""Operators' changes to the running node: their checks, rows, audit and message to the workers.

Pages, REST and commands call these and present the outcome. A `cleaned_` function returns a value
as it is stored, or raises ValidationError with a sentence. Each other function changes the database
and posts a control message in one transaction; the workers apply it within a second, and one that
starts later reads the rows. Bulk work is done in batches, because SQLite has one writer and the
workers' commits must not wait for it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from msgnode.core import addresses
from msgnode.federation import crossing
from msgnode.models import (
    AddressPool,
    Allocation,
    Ban,
    PoolAddress,
    Session,
    Subscription,
    Worker,
)
from msgnode.sessions.bans import network_fault
from msgnode.sessions.rules import runtime_url_fault
from msgnode.storage.alarms import POOL_EXHAUSTED, clear_alarm
from msgnode.storage.control import post
from msgnode.workers.membership_store import ready_sessions
from msgnode.workers.rebalancing import EVEN

from .audit import fields_of, note

PORTION = 50
LARGEST_TRANSACTION = 1_000
Row = TypeVar("Row")


def cleaned_ban(kind: str, value: str) -> str:
    """Whom or what a ban is of."""
    value, fault = value.strip(), ""
    if kind == Ban.Kind.SOURCE and not (fault := network_fault(value)):
        network = ipaddress.ip_network(value, strict=False)
        value = str(network.network_address if network.num_addresses == 1 else network)
    elif kind == Ban.Kind.RUNTIME:
        fault = runtime_url_fault(value)
    elif kind == Ban.Kind.DOMAIN:
        value = addresses.home_domain(value)
        is_own = value == addresses.home_domain(settings.DOMAIN)
        fault = "is this node's own domain" if is_own else crossing.domain_fault(value)
    elif kind not in Ban.Kind.values:
        raise ValidationError(f"{kind!r} is not one of {', '.join(Ban.Kind.values)}.")
    if fault or not value:
        raise ValidationError(f"This {fault or 'is empty'}.")
    return value


def cleaned_scheme(text: str) -> str:
    """The scheme of a pool."""
    scheme = text.strip().lower().rstrip(":/")
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ValidationError("The scheme is the part before the colon, e.g. sip.")
    return scheme


def cleaned_subscription(text: str) -> str:
    """The address of a subscription that an operator makes."""
    address = text.strip()
    parsed, fault = addresses.parse(address), addresses.fault(address)
    if not fault and not (parsed.scheme and parsed.path.strip("/")):
        fault = "is not an address (<scheme>://<domain>/<id>)"
    if fault:
        raise ValidationError(f"This {fault}.")
    return address


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


def take_from_sessions(rows: Iterable[Allocation | Subscription], actor: str) -> None:
    """Take addresses back from their sessions, or end subscriptions."""
    for portion in _portions(rows):
        with transaction.atomic():
            for row in portion:
                kind = f"{row._meta.model_name}.delete"  # allocation.delete, subscription.delete
                note(actor, kind, row, fields_of(row), {})
                post(kind, session=row.session_id.hex, address=row.address)
                row.delete()


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


def fill_pool(pool: AddressPool, given: Sequence[str], is_for_visitors: bool = False) -> int:
    """Put addresses into a pool; how many were new. One that any pool has stays as it is."""
    before = pool.addresses.count()
    for start in range(0, len(given), LARGEST_TRANSACTION):
        PoolAddress.objects.bulk_create(
            (
                PoolAddress(pool=pool, address=address, for_visitors=is_for_visitors)
                for address in given[start : start + LARGEST_TRANSACTION]
            ),
            ignore_conflicts=True,
        )
    added = pool.addresses.count() - before
    if added and not is_for_visitors:
        clear_alarm(POOL_EXHAUSTED, pool.scheme)
    return added


@transaction.atomic
def even_out(actor: str) -> str:
    """Have workers with more than their share of sessions tell some to come back; what was done.

    Raises:
        ValidationError: there is nobody to share with.
    """
    if len(ready_sessions()) < 2:
        raise ValidationError("Only one worker is ready: there is none to share sessions with.")
    note(actor, "worker.even", "all workers", {}, ready_sessions())
    post(EVEN)
    return "Workers with more than their share of sessions tell runtimes to come back."


@transaction.atomic
def restart_worker(worker: Worker, actor: str) -> str:
    """Drain a worker and have it begin again: its sessions go to the others; what was done.

    Raises:
        ValidationError: it is the only one that is ready.
    """
    if not ready_sessions().keys() - {worker.epoch}:
        raise ValidationError(f"{worker.name} is the only worker that is ready.")
    note(actor, "worker.restart", worker, {}, {})
    post("worker.restart", epoch=worker.epoch)
    return (
        f"{worker.name} tells its {worker.sessions} sessions to come back, gives those that do not "
        "to other workers, and ends; what has started it starts it again."
    )


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

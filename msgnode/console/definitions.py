"""Exports and imports what operators have defined, as one JSON document.

These are pools with their addresses, bans, and subscriptions by session. An import adds and updates
and never deletes; repeating it changes nothing. The document has no tokens, passwords or keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from msgnode.models import AddressPool, Ban, Session, Subscription

from . import operator_actions, pool_import
from .audit import note

KIND = "messaging-node definitions"
PARTS = ("pools", "bans", "subscriptions")


class PoolDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """A pool and its addresses; `for_visitors` names those that visitors may have."""

    scheme: str
    addresses: list[str] = []
    note: str = ""
    for_visitors: list[str] | msgspec.UnsetType = msgspec.UNSET  # older versions know none


class BanDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """A ban: of whom or what, why, and until when."""

    kind: str
    value: str
    reason: str = ""
    expires_at: datetime | None = None


class SubscriptionDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """An address that a session listens to."""

    session: str
    runtime_url: str
    address: str


class Definitions(msgspec.Struct, forbid_unknown_fields=True):
    """All that an operator has defined, as a document of this version."""

    kind: str = KIND
    version: int = 1
    pools: list[PoolDefinition] = []
    bans: list[BanDefinition] = []
    subscriptions: list[SubscriptionDefinition] = []


def collect() -> Definitions:
    """The present definitions."""
    found = Definitions()
    for pool in AddressPool.objects.order_by("scheme"):
        held: dict[bool, list[str]] = {False: [], True: []}
        lent = pool.addresses.order_by("address").values_list("address", "for_visitors")
        for address, is_for_visitors in lent:
            held[is_for_visitors].append(address)
        for_visitors = held[True] or msgspec.UNSET
        found.pools.append(PoolDefinition(pool.scheme, held[False], pool.note, for_visitors))
    for ban in Ban.objects.order_by("kind", "value"):
        found.bans.append(BanDefinition(ban.kind, ban.value, ban.reason, ban.expires_at))
    rows = Subscription.objects.exclude(session__state=Session.State.CLOSED)
    named = rows.order_by("id").values_list("session_id", "session__runtime_url", "address")
    for session, runtime_url, address in named.iterator(chunk_size=2000):
        found.subscriptions.append(SubscriptionDefinition(session.hex, runtime_url, address))
    return found


def read(document: bytes) -> Definitions:
    """Check a document. Raises ValueError with the errors."""
    found = msgspec.json.decode(document, type=Definitions)
    if found.kind != KIND or found.version != 1:
        raise ValueError(f"This file is not version 1 of {KIND}.")
    return found


def faults(found: Definitions) -> list[str]:
    """Put every value as it is stored; return every reason not to take the document in."""
    told: list[str] = []
    for pool in found.pools:
        with _told(told, f"pool {pool.scheme!r}"):
            pool.scheme = operator_actions.cleaned_scheme(pool.scheme)
        every = [*pool.addresses, *(pool.for_visitors or ())]
        lines = pool_import.of_text("\n".join(every), pool.scheme)
        told += [f"pool {pool.scheme}, address {fault}" for fault in lines.faults]
    for ban in found.bans:
        with _told(told, f"ban of {ban.value!r}"):
            ban.value = operator_actions.cleaned_ban(ban.kind, ban.value)
    for wanted in found.subscriptions:
        with _told(told, f"subscription of {wanted.runtime_url} to {wanted.address!r}"):
            wanted.address = operator_actions.cleaned_subscription(wanted.address)
    return told


@contextmanager
def _told(told: list[str], what: str) -> Iterator[None]:
    """Add what is wrong with a value to the faults."""
    try:
        yield
    except ValidationError as fault:
        told.append(f"{what}: {fault.messages[0]}")


def take_in(found: Definitions, actor: str) -> dict[str, int]:
    """Add and update; how much was new. Definitions without faults only."""
    new = {"addresses": sum(_take_pool(pool) for pool in found.pools)}
    with transaction.atomic():
        new["bans"] = sum(_take_ban(ban, actor) for ban in found.bans)
        operator_actions.publish_pools()
        operator_actions.publish_bans()
    new["subscriptions"], new["without_session"] = _take_subscriptions(found.subscriptions, actor)
    note(actor, "definitions.import", KIND, {}, new)
    return new


def _take_pool(pool: PoolDefinition) -> int:
    row, _ = AddressPool.objects.update_or_create(scheme=pool.scheme, defaults={"note": pool.note})
    for_visitors = operator_actions.fill_pool(row, pool.for_visitors or [], True)
    return for_visitors + operator_actions.fill_pool(row, pool.addresses)


def _take_ban(ban: BanDefinition, actor: str) -> bool:
    _, is_new = Ban.objects.update_or_create(
        kind=ban.kind,
        value=ban.value,
        defaults={"reason": ban.reason, "expires_at": ban.expires_at},
        create_defaults={
            "reason": ban.reason,
            "expires_at": ban.expires_at,
            "created_by": actor,
            "created_at": timezone.now(),
        },
    )
    return is_new


def _take_subscriptions(wanted: list[SubscriptionDefinition], actor: str) -> tuple[int, int]:
    """Each for the session it was of, else for the newest of its runtime."""
    taken = lost = 0
    for each in wanted:
        session = _session_of(each)
        if session is None:
            lost += 1
        elif not Subscription.objects.filter(session=session, address=each.address).exists():
            row = Subscription(session=session, address=each.address)
            operator_actions.add_subscription(row, actor)
            taken += 1
    return taken, lost


def _session_of(wanted: SubscriptionDefinition) -> Session | None:
    live = Session.objects.filter(runtime_url=wanted.runtime_url).exclude(
        state=Session.State.CLOSED
    )
    sessions = list(live.order_by("-opened_at")[:16])
    same = [session for session in sessions if session.pk.hex == wanted.session]
    return next(iter(same or sessions), None)

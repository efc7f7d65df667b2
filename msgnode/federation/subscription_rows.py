"""The rows of what this node has subscribed at its peers. All functions block.

A row is there while the peer is asked for an address, or has granted it; whether somebody observes
it here is said by the rows of the sessions' subscriptions, for all workers alike.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from enum import Enum

from django.db.models import Exists, OuterRef
from django.utils import timezone

from msgnode.core.addresses import is_event, parse
from msgnode.models import Peer, PeerSubscription, Subscription

MAX_ROWS = 20_000
"""Addresses of one peer."""
_PART = 5_000
"""Subscriptions that are looked at together; other writes go in between."""

_OBSERVED = Subscription.objects.filter(address=OuterRef("address"))


class NotNoted(Enum):
    """Why addresses are not noted."""

    NO_PEER = "the peer is gone"
    FULL = "it has too many already"


def note(peer: int, addresses: Sequence[str]) -> set[str] | NotNoted:
    """Somebody here observes these addresses of a peer: those that it has not granted yet."""
    if not Peer.objects.select_for_update(no_key=True).filter(pk=peer).values_list("pk"):
        return NotNoted.NO_PEER
    rows = PeerSubscription.objects.filter(peer=peer, address__in=addresses)
    rows.update(wanted_at=timezone.now())  # so that nobody ends them now, who saw them idle
    known = dict(rows.values_list("address", "is_held"))
    new = [address for address in addresses if address not in known]
    if new and PeerSubscription.objects.filter(peer=peer).count() + len(new) > MAX_ROWS:
        return NotNoted.FULL
    PeerSubscription.objects.bulk_create(
        [PeerSubscription(peer_id=peer, address=address) for address in new]
    )
    return {address for address in addresses if not known.get(address)}


def observed(domain: str, after: int) -> tuple[list[str], int]:
    """What sessions here observe of a domain, by a part of their subscriptions.

    Args:
        domain: whose addresses.
        after: where the part begins: 0, or what was returned for the part before.

    Returns:
        The addresses, and where to go on, 0 after the last part.
    """
    rows = Subscription.objects.filter(pk__gt=after).order_by("pk").values_list("pk", "address")
    part = list(rows[:_PART])
    named = [address for _, address in part if domain in address.lower() and is_event(address)]
    found = [address for address in named if parse(address).home == domain]
    return found, part[-1][0] if len(part) == _PART else 0


def of(peer: int) -> list[tuple[str, bool]]:
    """Each address, and whether the peer has granted it."""
    return list(PeerSubscription.objects.filter(peer=peer).values_list("address", "is_held"))


def granted(peer: int, addresses: Collection[str]) -> None:
    """The peer has granted these."""
    PeerSubscription.objects.filter(peer=peer, address__in=addresses).update(is_held=True)


def refused(peer: int, addresses: Collection[str]) -> None:
    """The peer has refused these."""
    PeerSubscription.objects.filter(peer=peer, address__in=addresses).delete()


def idle(peer: int) -> set[str]:
    """Those that nobody here observes."""
    rows = PeerSubscription.objects.filter(~Exists(_OBSERVED), peer=peer)
    return set(rows.values_list("address", flat=True))


def end_idle(peer: int, addresses: Collection[str], seconds: float) -> list[str]:
    """End those of these that nobody observes now, nor has asked for in so many seconds."""
    before = timezone.now() - timedelta(seconds=seconds)
    ended: list[str] = []
    for address in addresses:
        rows = PeerSubscription.objects.filter(
            ~Exists(_OBSERVED), peer=peer, address=address, wanted_at__lt=before
        )
        if rows.delete()[0]:
            ended.append(address)
    return ended

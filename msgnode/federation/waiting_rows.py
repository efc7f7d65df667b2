"""The rows of messages that wait for peers, and orders about them. All functions block."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from msgnode.models import Peer, PeerMessage
from msgnode.storage.control import post

RETRY = "peers.retry"
"""The control message that some of a queue get their whole time again, and the peer is tried."""
DISCARD = "peers.discard"
"""The control message that some of a queue, or all, wait no longer."""
_PORTION = 500


def show(peer: int, queue: str, new: Collection[PeerMessage], gone: Collection[int]) -> None:
    """What waits in a queue now: these as well, and those no more. Other queues of the peer end."""
    with transaction.atomic():
        PeerMessage.objects.filter(peer=peer).exclude(queue=queue).delete()
        numbers = list(gone)
        for start in range(0, len(numbers), _PORTION):
            some = numbers[start : start + _PORTION]
            PeerMessage.objects.filter(queue=queue, number__in=some).delete()
        PeerMessage.objects.bulk_create(new, batch_size=_PORTION, ignore_conflicts=True)


def forget(peer: int) -> None:
    """Nothing waits for a peer any more."""
    PeerMessage.objects.filter(peer=peer).delete()


def order(kind: str, rows: Iterable[PeerMessage]) -> None:
    """Have the worker retry or discard messages. Takes part in the caller's transaction.

    Args:
        kind: RETRY or DISCARD.
        rows: with their peers. What has left the queue meanwhile is not touched.
    """
    chosen: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        chosen.setdefault((row.peer.domain, row.queue), []).append(row.number)
    for (domain, queue), numbers in chosen.items():
        post(kind, domain=domain, queue=queue, numbers=numbers)
        if kind == DISCARD:
            PeerMessage.objects.filter(queue=queue, number__in=numbers).delete()


def discard_all(peer: Peer) -> None:
    """Have all that waits for a peer be discarded, what no row shows too."""
    with transaction.atomic():
        post(DISCARD, domain=peer.domain, queue="", numbers=None)
        forget(peer.pk)


def waiting() -> QuerySet[PeerMessage]:
    """What a worker has said that waits, and cannot be over yet."""
    return told().filter(is_sent=False)


def told() -> QuerySet[PeerMessage]:
    """That, and what has left, for which there is no response yet."""
    return PeerMessage.objects.filter(until__gt=timezone.now()).select_related("peer")

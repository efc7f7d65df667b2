"""The rows of stored requests to peers. All functions block."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from django.utils import timezone

from msgnode.core.messages import Message
from msgnode.core.redaction import cut, cut_id
from msgnode.models import ADDRESS_LENGTH, StoredMessage
from msgnode.models.federation import MESSAGE_ID

SET_ASIDE_DAYS = 7
"""Days for which an undeliverable message is kept."""
SET_ASIDE_AT_MOST = 1_000
"""Most such messages of one peer; the oldest are deleted first."""

Seal = Callable[[str], str]


class Stored(NamedTuple):
    """A stored message, its age, and the seconds until it expires."""

    key: str
    frame: bytes
    age: float
    left: float


def shown_id(message: Message) -> str:
    """A message's id as written, for operators' searches."""
    return cut_id(message.id.decode(errors="replace"))[:MESSAGE_ID]


def read(peer: int, unseal: Seal) -> list[Stored]:
    """The stored messages for a peer, in order. Those that cannot be decrypted are set aside."""
    now, found = timezone.now(), []
    for row in StoredMessage.objects.filter(peer=peer, set_aside_at=None).order_by("id"):
        frame = unseal(row.sealed).encode()
        if not frame:
            set_aside(row.key, "It was sealed with a key that this node has no more.")
            continue
        age, left = (now - row.since).total_seconds(), (row.until - now).total_seconds()
        found.append(Stored(row.key, frame, age, left))
    return found


def add(row: StoredMessage, frame: bytes, seal: Seal) -> None:
    """Store a message."""
    row.sender, row.to = cut(row.sender)[:ADDRESS_LENGTH], cut(row.to)[:ADDRESS_LENGTH]
    row.sealed = seal(frame.decode())
    row.save(force_insert=True)


def remove(key: str) -> None:
    """Remove a stored message."""
    StoredMessage.objects.filter(key=key).delete()


def set_aside(key: str, reason: str) -> None:
    """Set a message aside: it is not tried again."""
    rows = StoredMessage.objects.filter(key=key)
    rows.update(set_aside_at=timezone.now(), reason=reason[:300])
    peer = rows.values_list("peer", flat=True).first()
    aside = StoredMessage.objects.filter(peer=peer).exclude(set_aside_at=None).order_by("-id")
    beyond = list(aside.values_list("pk", flat=True)[SET_ASIDE_AT_MOST : SET_ASIDE_AT_MOST + 500])
    StoredMessage.objects.filter(pk__in=beyond).delete()


def forget_old() -> None:
    """Remove what was set aside long ago."""
    before = timezone.now() - timedelta(days=SET_ASIDE_DAYS)
    StoredMessage.objects.filter(set_aside_at__lt=before).delete()

"""Finds out where a message to or from a peer is: queued, sent, stored, or its outcome.

What is queued, or without a response, is known once that has lasted a second; what has passed, once
the traffic record is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from msgnode.core import addresses
from msgnode.federation import monitoring
from msgnode.models import Peer, StoredMessage

HOURS = 2
"""Of the traffic record that are looked through."""
MOST = 100


class Whereabouts(NamedTuple):
    """Where a message is, or what became of it; `stage` is one of STAGES."""

    stage: str
    at: datetime
    type: str
    sender: str
    to: str
    text: str = ""


STAGES = ("waits", "sent", "stored", "set aside", "passed")


def has_id(term: str) -> Q:
    """The rows of messages with this id, with its quotes or without."""
    return Q(message_id__in=_written(term))


def where(peer: Peer, id_: str) -> list[Whereabouts]:
    """All that is known of messages with an id, to and from a peer.

    Raises:
        OSError: the traffic record cannot be read.
    """
    return [*_told(peer, id_), *_stored(peer, id_), *_passed(peer, id_)]


def _written(id_: str) -> tuple[str, str]:
    return id_, f'"{id_}"'


def _told(peer: Peer, id_: str) -> Iterator[Whereabouts]:
    for row in monitoring.told().filter(has_id(id_), peer=peer)[:MOST]:
        state = peer.state or "not served"
        stage, text = ("sent", "no response yet") if row.is_sent else ("waits", f"peer: {state}")
        yield Whereabouts(stage, row.since, row.type, row.sender, row.to, text)


def _stored(peer: Peer, id_: str) -> Iterator[Whereabouts]:
    for row in StoredMessage.objects.filter(has_id(id_), peer=peer)[:MOST]:
        if row.set_aside_at is None:
            yield Whereabouts("stored", row.since, row.type, row.sender, row.to)
        else:
            aside = row.set_aside_at
            yield Whereabouts("set aside", aside, row.type, row.sender, row.to, row.reason)


def _passed(peer: Peer, id_: str) -> Iterator[Whereabouts]:
    if not settings.RECORD["ON"]:
        return
    # Arrow is loaded by who asks, not by every program
    from msgnode.traffic import by_id
    from msgnode.traffic.recorder import raw_url

    def is_of_peer(sender: str, to: str) -> bool:
        return peer.domain in (addresses.parse(sender).home, addresses.parse(to).home)

    url, now = raw_url(settings.RECORD["URL"]), timezone.now()
    for row in by_id.rows(url, _written(id_), peer.domain, is_of_peer, now, HOURS, MOST):
        text = f"{row.outcome} {row.code or ''}".rstrip()
        yield Whereabouts("passed", row.at, row.type, row.sender, row.to, text)

"""What operators do with peers and their messages, audited: for pages, the API and `manage.py`."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from django.db import transaction

from msgnode.federation import monitoring, store
from msgnode.models import Peer, PeerMessage

from .audit import note

_AUDITED = {monitoring.RETRY: "peer.retry", monitoring.DISCARD: "peer.discard"}
_NAMED = 20
"""Messages that an entry of the audit log names."""


def url_of_node_fault(url: str) -> str:
    """Why this cannot be the URL of a node, "" if it can, or is empty."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if url and (not is_good or parts.query or parts.fragment or parts.username is not None):
        return "must be a URL such as https://node.example.org"
    return ""


def decision_word(peer: Peer) -> str:
    """The decision, and whether another stub awaits one."""
    is_other = peer.found_digest and peer.approved_digest not in ("", peer.found_digest)
    word = peer.get_decision_display() + (", another stub waits" if is_other else "")
    return word + (", its stub is not signed" if store.is_unsigned(peer) else "")


def restart(peer: Peer, actor: str) -> str:
    """Restart the stub of a peer, audited; return the obstacle, if any."""
    with transaction.atomic():
        if why := store.restart(peer):
            return why
        note(actor, "peer.restart", peer, {}, {})
    return ""


def order(kind: str, rows: Iterable[PeerMessage], actor: str) -> int:
    """Have the worker retry or discard messages, audited; return their number."""
    chosen = list(rows)
    with transaction.atomic():
        for peer in dict.fromkeys(row.peer for row in chosen):
            mine = [str(row) for row in chosen if row.peer_id == peer.pk]
            after = {"messages": len(mine), "first": mine[:_NAMED]}
            note(actor, _AUDITED[kind], peer, {}, after)
        monitoring.order(kind, chosen)
    return len(chosen)


def discard_all(peer: Peer, actor: str) -> None:
    """Have all messages queued for a peer discarded, audited."""
    with transaction.atomic():
        note(actor, _AUDITED[monitoring.DISCARD], peer, {}, {"messages": "all"})
        monitoring.discard_all(peer)

"""What the map of domains is told each second: this node, its peers, and where visitors are from.

Figures come from the workers' memory; what was decided of a peer, and of those that no worker
serves the state, from their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from msgnode.federation.states import IDLE, LIVE
from msgnode.models import Peer
from msgnode.monitoring.domain_watch import TOLD, DomainFigures, PeerFigures, VisitorFigures

TOPIC = "domains"
MOST = 200
"""Peers that are told, those that a worker serves first."""
_NOT_SERVED = {"approved": "waits for a worker", "pending": "waits for approval"}


class PeerRow(NamedTuple):
    """A peer, as it was decided; `network` is the key of a legacy network, None of a node."""

    pk: int
    domain: str
    decision: str
    network: int | None = None


def rows() -> list[PeerRow]:
    """The peers. Blocks."""
    found = Peer.objects.order_by("decision", "domain")  # approved ones first
    told = found.values_list("pk", "domain", "decision", "legacynetwork")
    return [PeerRow(*row) for row in told[:MOST]]


def now_of(told: Mapping[str, DomainFigures | None], known: Sequence[PeerRow]) -> dict[str, Any]:
    """The map of this second.

    Args:
        told: by each worker, by name; None by one that did not answer.
        known: the rows of the peers.
    """
    heard = [each for each in told.values() if each is not None]
    served = {peer.domain: peer for each in heard for peer in each.peers}
    visitors = _joined(heard)
    beyond = visitors[TOLD:]
    return {
        "peers": [_peer(row, served.get(row.domain)) for row in known],
        "visitors": [_visitors(each) for each in visitors[:TOLD]],
        "other_domains": len(beyond) + sum(each.others[0] for each in heard),
        "other_sessions": sum(each.sessions for each in beyond)
        + sum(each.others[1] for each in heard),
        "missing": [name for name, each in told.items() if each is None],
    }


def _joined(heard: Sequence[DomainFigures]) -> list[VisitorFigures]:
    """Visitors of all workers by domain, most first."""
    joined: dict[str, VisitorFigures] = {}
    for each in (each for told in heard for each in told.visitors):
        of = joined.get(each.domain)
        if of is None:
            of = joined[each.domain] = VisitorFigures(each.domain, 0)
        of.sessions += each.sessions
        of.sent += each.sent
        of.received += each.received
    return sorted(joined.values(), key=lambda each: (-each.sessions, each.domain))


def _peer(row: PeerRow, now: PeerFigures | None) -> dict[str, Any]:
    is_served = now is not None and row.decision == Peer.Decision.APPROVED
    state = now.state if now is not None and is_served else _NOT_SERVED.get(row.decision)
    kind = "peer" if row.network is None else "legacynetwork"
    return {
        "domain": row.domain,
        "state": state or row.decision,
        "is_well": state in (LIVE, IDLE),
        "sent": round(now.sent, 1) if now else 0,
        "received": round(now.received, 1) if now else 0,
        "waiting": now.waiting if now else 0,
        "round_trip_ms": round(now.round_trip * 1000, 1) if now else 0,
        "url": reverse(f"admin:msgnode_{kind}_change", args=[row.pk]),
    }


def _visitors(each: VisitorFigures) -> dict[str, Any]:
    sessions = reverse("admin:msgnode_session_changelist")
    return {
        "domain": each.domain,
        "sessions": each.sessions,
        "sent": round(each.sent, 1),
        "received": round(each.received, 1),
        "url": f"{sessions}?{urlencode({'visitor': each.domain})}",
    }

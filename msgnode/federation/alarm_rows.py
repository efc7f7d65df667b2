"""Clears the alarms of peers about which nothing is left to decide or to repair. Blocks.

Whoever served a peer clears its alarms when that ends. But an operator may also remove, pause or
block a peer that waits for approval, or that no worker serves.
"""

from __future__ import annotations

from msgnode.models import Alarm, Peer
from msgnode.storage.alarms import PEER_PENDING, STUB_CHANGED, clear_alarm

from .peer_alarms import FAILING_ALARM, STUCK_ALARM

_LEFT = {
    PEER_PENDING: {Peer.Decision.PENDING},
    STUB_CHANGED: set(Peer.Decision),
    FAILING_ALARM: {Peer.Decision.APPROVED},
    STUCK_ALARM: {Peer.Decision.APPROVED},
}
"""The decisions about a peer with which an alarm may stand."""


def clear_settled() -> None:
    """Clear the alarms that stand although their peer is gone, or was decided about."""
    found = Alarm.objects.filter(kind__in=_LEFT, cleared_at=None)
    standing = list(found.values_list("kind", "subject"))
    named = {subject for _, subject in standing}
    decisions = dict(Peer.objects.filter(domain__in=named).values_list("domain", "decision"))
    for kind, domain in standing:
        if decisions.get(domain) not in _LEFT[kind]:
            clear_alarm(kind, domain)

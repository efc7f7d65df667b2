"""When the catalogue of a peer is looked at.

At once if a person wants it or has changed where it is; then every hour, and every five minutes
while it has no usable stub. A stub that waits for approval, and a peer that is paused or blocked,
is looked at again only if a person wants it.
"""

from __future__ import annotations

import math
from datetime import timedelta

from msgnode.models import Peer

EVERY = timedelta(hours=1)
FAILED_EVERY = timedelta(minutes=5)


def next_look(peer: Peer) -> float:
    """When the stub of a peer is to be looked for, in seconds since 1970."""
    if peer.looked_at is None:
        return 0.0
    is_approved = peer.decision == peer.Decision.APPROVED
    has_none = peer.decision == peer.Decision.PENDING and bool(peer.discovery)
    if not (is_approved or has_none):
        return math.inf
    return (peer.looked_at + (FAILED_EVERY if peer.discovery else EVERY)).timestamp()

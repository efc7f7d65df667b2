"""Parses what coturn publishes about its allocations in Redis: channel and text to an event. Pure.

The channel names realm, user and allocation, with or without a prefix of the server's address as in
an older fork: `turn/…/realm/<realm>/user/<user>/allocation/<number>/<kind>[/peer]`.

status         new, refreshed or deleted
traffic        packets and bytes since the last report
total_traffic  the same for the whole life of the allocation, at its end
`/peer` counts the traffic between the server and the peers, without the overhead of TURN.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

PATTERN = "turn/*/user/*/allocation/*"
"""The channels to subscribe."""
MOST = 10**15
"""Bytes in one direction that an allocation can have carried."""
_CHANNEL = re.compile(
    r"turn/(?:.*/)?realm/[^/]{0,255}/user/([^/]{1,64})/allocation/(\d{1,32})"
    r"/(status|traffic|total_traffic)(/peer)?"
)
_COUNTS = re.compile(r"rcvp=\d{1,18}, rcvb=(\d{1,18}), sentp=\d{1,18}, sentb=(\d{1,18})")


class Kind(Enum):
    """The kind of an event."""

    NEW = "new"
    ENDED = "ended"
    REPORT = "report"
    TOTAL = "total"


class Event(NamedTuple):
    """One event; bytes are from and to the peers."""

    kind: Kind
    user: str
    number: str
    received: int = 0
    sent: int = 0


def parse(channel: str, text: str) -> Event | None:
    """Parse an event; None if it is irrelevant or unreadable."""
    found = _CHANNEL.fullmatch(channel)
    if found is None:
        return None
    user, number, kind, is_peer = found.groups()
    if kind == "status":
        if text.startswith("new "):
            return Event(Kind.NEW, user, number)
        return Event(Kind.ENDED, user, number) if text.startswith("deleted") else None
    counts = _COUNTS.fullmatch(text.strip())
    if not is_peer or counts is None:
        return None
    received, sent = int(counts[1]), int(counts[2])
    if received > MOST or sent > MOST:
        return None
    return Event(
        Kind.TOTAL if kind == "total_traffic" else Kind.REPORT, user, number, received, sent
    )

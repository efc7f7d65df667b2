"""The way through the node, which nothing on a channel may overtake.

A fence of the channel takes the way of the signalling, so only what is for the same node can be
behind it. What went to an address of which nobody knew that it is at a peer may still be on that
way when that is known: then another fence is needed. After SECONDS it has arrived.
"""

from __future__ import annotations

from collections import OrderedDict

from msgnode.runtime.python.destinations import NoDestination, destination
from msgnode.runtime.python.settings import Settings

SECONDS = 60.0
MOST = 1_000
"""Addresses that are remembered; of more than that, those sent to last."""


class NodePath:
    """What one runtime sends through its node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sent_at: OrderedDict[str, float] = OrderedDict()

    def is_shared(self, to: str, signalling: str) -> bool:
        """Whether what is sent to an address goes the way of the signalling to a peer."""
        try:
            key = destination(signalling, self._settings).key
            return destination(to, self._settings).key == key
        except NoDestination:
            return False

    def sent(self, to: str, now: float) -> None:
        """A message went there through the node; `now` is of the monotonic clock."""
        self._sent_at[to] = now
        self._sent_at.move_to_end(to)
        if len(self._sent_at) > MOST:
            self._sent_at.popitem(last=False)

    def take(self, to: str, now: float) -> bool:
        """Whether one may still be on the way there; only the first who asks is told so."""
        at = self._sent_at.pop(to, None)
        return at is not None and now - at < SECONDS

"""Whether the stub of a peer is needed, or has had nothing to do for so long that it may end. Pure.

It is needed while a message waits for the peer, a response to one may still come, or something is
subscribed there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .held_subscriptions import HeldSubscriptions
from .peer_exchange import PeerExchange


class Idleness:
    """One instance per peer that this worker serves.

    Args:
        seconds: without a message either way after which the stub may end.
        exchange: with the peer.
        subscriptions: there.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        seconds: float,
        exchange: PeerExchange,
        subscriptions: HeldSubscriptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._exchange = exchange
        self._subscriptions = subscriptions
        self._clock = clock
        self._passed = 0
        self._since = clock()

    @property
    def is_needed(self) -> bool:
        """Whether the stub has something to do, or may have soon."""
        return self._exchange.is_busy or self._subscriptions.is_busy

    def begin(self) -> None:
        """The stub starts: its time begins anew."""
        self._since = self._clock()

    def is_over(self) -> bool:
        """Whether it was not needed for so long. To be asked now and then."""
        counters = self._exchange.counters
        passed = counters.sent + counters.received
        if passed != self._passed or self.is_needed:
            self._passed = passed
            self.begin()
        return self._clock() - self._since >= self._seconds

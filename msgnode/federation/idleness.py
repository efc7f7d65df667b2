"""Tells when the stub of a peer has been idle for long enough to stop. Pure.

A stub is needed while a message waits for the peer, a response may still come, or something is
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
        seconds: time without a message in either direction after which the stub may stop.
        exchange: the exchange with the peer.
        subscriptions: the subscriptions there.
        clock: a monotonic clock, in seconds.
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
        """Whether the stub has something to do, or soon may."""
        return self._exchange.is_busy or self._subscriptions.is_busy

    def begin(self) -> None:
        """Restart the time, because the stub starts."""
        self._since = self._clock()

    def is_over(self) -> bool:
        """Whether it was not needed for so long. Call this regularly."""
        counters = self._exchange.counters
        passed = counters.sent + counters.received
        if passed != self._passed or self.is_needed:
            self._passed = passed
            self.begin()
        return self._clock() - self._since >= self._seconds

"""What has passed between this node and a peer, and what has not."""

from __future__ import annotations

import time
from dataclasses import dataclass

from . import pipe


@dataclass(slots=True)
class PeerCounters:
    """What has passed between this node and a peer, and what has not."""

    sent: int = 0
    received: int = 0
    refused: int = 0  # what came, or was to go, and was not carried
    expired: int = 0
    full: int = 0
    failed: int = 0  # requests that ended with the way to the peer, or the session there
    unanswered: int = 0  # requests that the peer was silent about for as long as one waits
    discarded: int = 0  # by an operator
    set_aside: int = 0  # stored ones that could not be delivered
    lost: int = 0  # what the stub wrote to a socket that was no more
    restarts: int = 0
    round_trip: float = 0.0  # of the last response, in seconds


@dataclass(slots=True)
class Way:
    """One direction: when something has passed last, and what has not. Seconds of UTC."""

    passed_at: float = 0.0
    failed_at: float = 0.0
    error: str = ""

    def passed(self) -> None:
        """Something has passed."""
        self.passed_at = time.time()

    def failed(self, error: str) -> None:
        """Something has not, for this reason."""
        self.failed_at, self.error = time.time(), error[: 4 * pipe.SHOWN]

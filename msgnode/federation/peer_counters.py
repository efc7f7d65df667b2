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
    refused: int = 0  # messages in either direction that were refused
    expired: int = 0
    full: int = 0
    failed: int = 0  # requests whose connection or session ended before a response
    unanswered: int = 0  # requests without a response within the time limit
    discarded: int = 0  # by an operator
    set_aside: int = 0  # stored messages that could not be delivered
    lost: int = 0  # frames the stub wrote to a lost socket
    restarts: int = 0
    round_trip: float = 0.0  # of the last response, in seconds


@dataclass(slots=True)
class Way:
    """One direction: the last success and the last failure. Seconds of UTC."""

    passed_at: float = 0.0
    failed_at: float = 0.0
    error: str = ""

    def passed(self) -> None:
        """Note a success."""
        self.passed_at = time.time()

    def failed(self, error: str) -> None:
        """Note a failure, with its reason."""
        self.failed_at, self.error = time.time(), error[: 4 * pipe.SHOWN]

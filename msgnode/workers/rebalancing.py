"""Evens out sessions between workers: after one has joined, or when an operator asks for it.

    a worker has joined, and since the last look none has joined or left; or `workers.even`
    -> a worker with more than its share tells so many runtimes to come back (3001), slowly
    -> the session of one that comes back to another worker moves there (handover.py)

Rules
- Nothing moves a session but its runtime, which comes back as after a drain: with all it holds.
- At most RATE runtimes a second and worker are told, and none whose frames wait to be carried.
- What a worker has above the mean is counted in sessions with a socket: others cannot be told.
- The shares are those that all workers have stored with their leases, so the next look is taken
  when all have stored them again.
- It ends when this worker has at most TOLERANCE above the mean, and after ROUNDS looks: a proxy may
  lead every runtime back to the worker that it had.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgnode.core.faults import FAULTS
from msgnode.sessions.connection import Connection
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.rules import CloseCode
from msgnode.storage.database_threads import in_any_thread

from . import membership_store

EVEN = "workers.even"
"""Kind of the control message that asks for it."""
RATE = 20.0
TOLERANCE = 0.1
ROUNDS = 10
FEWEST = 3
"""Sessions above the mean that are not worth a round."""


def surplus_of(own: int, sessions: Mapping[str, int]) -> int:
    """How many sessions a worker has above its share, 0 if they are even enough.

    Args:
        own: those of this worker that have a socket.
        sessions: all of each worker.

    >>> surplus_of(60, {"a": 60, "b": 20}), surplus_of(42, {"a": 42, "b": 38})
    (20, 0)
    """
    mean = sum(sessions.values()) / max(1, len(sessions))
    above = own - mean
    return int(above) if above > mean * TOLERANCE and above > FEWEST else 0


class Rebalancing:
    """One instance per worker of a node that has several.

    Args:
        epoch: of this worker.
        sockets: its connections.
        every: seconds between two looks: all workers store their figures meanwhile.
        rate: runtimes a second that are told to come back.
        read: the sessions of the workers that are ready, by epoch. Blocks.
    """

    def __init__(
        self,
        epoch: str,
        sockets: ConnectionLimits,
        every: float,
        rate: float = RATE,
        read: Callable[[], dict[str, int]] = membership_store.ready_sessions,
    ) -> None:
        self._epoch = epoch
        self._sockets = sockets
        self._every = every
        self._rate = rate
        self._read = read
        self._known: set[str] = set()
        self._rounds = 0
        self._asked = asyncio.Event()

    def ask(self, payload: dict[str, Any]) -> None:
        """Begin at once; the handler of EVEN."""
        self._asked.set()

    async def run(self) -> None:
        """Run until cancelled; while the database is away, nothing is evened out."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._every)
            with FAULTS.kept_to("rebalancing"):
                await self._look()

    async def _look(self) -> None:
        sessions = await in_any_thread(self._read)
        epochs = set(sessions)
        has_changed, self._known = epochs != self._known, epochs
        if self._asked.is_set():
            self._asked.clear()
            self._rounds = ROUNDS
        elif has_changed:  # more may come and go: the next look begins
            self._rounds = ROUNDS
            return
        if self._rounds and self._epoch in sessions:
            self._rounds -= 1
            there = [each for each in self._sockets.connections if each.session is not None]
            await self._send_back(surplus_of(len(there), sessions), there)

    async def _send_back(self, number: int, connections: Sequence[Connection]) -> None:
        """Tell so many runtimes, chosen at random, to come back."""
        able = [connection for connection in connections if not connection.is_held_back]
        for connection in random.sample(able, min(number, len(able))):
            if connection in self._sockets.connections and not connection.has_frames:
                with FAULTS.kept_to("connection"):
                    connection.end(CloseCode.GOING_AWAY, "sessions are evened out: come back")
            await asyncio.sleep(1 / self._rate)

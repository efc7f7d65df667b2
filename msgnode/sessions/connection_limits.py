"""Limits the number of sockets, in total and per source address (IPv6: its /64)."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable

from msgnode.core.errors import Forbidden, TooMany, Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.rates import source_of

from .connection import Connection

_MANY = 1000  # that take the whole time to be closed; fewer take less, in proportion
_RETURNS = 1000  # a second that are told to come back
_STEP = 0.02  # seconds the loop is left alone at a time


class ConnectionLimits:
    """The open connections of this worker, and their limits."""

    def __init__(self, limit: int, limit_per_source: int, is_banned: Callable[[str], bool]) -> None:
        self.connections: set[Connection] = set()
        self._per_source: Counter[str] = Counter()
        self._limit = limit
        self._limit_per_source = limit_per_source
        self._is_banned = is_banned

    def check(self, source: str) -> None:
        """Check that another connection of this source is allowed.

        Raises:
            Forbidden: the source is banned.
            TooMany: the source is at its limit.
            Unavailable: the worker is at its limit.
        """
        if self._is_banned(source):
            raise Forbidden("Your address is banned from this node.")
        if len(self.connections) >= self._limit:
            raise Unavailable("The node has reached its limit of connections: try again later.")
        if self._per_source[source_of(source)] >= self._limit_per_source:
            raise TooMany("Your address has reached its limit of connections: close one first.")

    def add(self, connection: Connection, source: str) -> None:
        """Add a connection, after `check`."""
        self.connections.add(connection)
        self._per_source[source_of(source)] += 1

    def remove(self, connection: Connection, source: str) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        name = source_of(source)
        self._per_source[name] -= 1
        if self._per_source[name] <= 0:
            del self._per_source[name]

    def end_banned(self, code: int) -> None:
        """Close the sockets of banned source addresses that have no session."""
        for connection in tuple(self.connections):
            if connection.session is None and self._is_banned(connection.speaker.remote_address):
                _end(connection, code, "banned from this node")

    async def end_all(self, code: int, reason: str, seconds: float) -> None:
        """Close every socket with the same code, a thousand or more spread over `seconds`.

        Clients that are closed at the same time would reconnect at the same time. The reason tells
        each a time within which it is to come back, at random: `retryAfter`, in seconds.
        """
        connections = tuple(self.connections)
        reason += f"; retryAfter={math.ceil(len(connections) / _RETURNS)}"
        pause = seconds / max(_MANY, len(connections))
        late = 0.0
        for connection in connections:
            _end(connection, code, reason)
            late += pause
            if late >= _STEP:
                await asyncio.sleep(late)
                late = 0.0
        for connection in tuple(self.connections):  # those opened meanwhile
            _end(connection, code, reason)


def _end(connection: Connection, code: int, reason: str) -> None:
    """End one connection; a failure does not affect the others."""
    with FAULTS.kept_to("connection"):
        connection.end(code, reason)

"""How many sockets there are: in total, and of each source address."""

from __future__ import annotations

from collections import Counter

from .connection import Connection


class Sockets:
    """The open connections of this worker, within their limits."""

    def __init__(self, limit: int, limit_per_source: int) -> None:
        self.connections: set[Connection] = set()
        self._per_source: Counter[str] = Counter()
        self._limit = limit
        self._limit_per_source = limit_per_source

    def has_room(self, source: str) -> bool:
        return (
            len(self.connections) < self._limit
            and self._per_source[source] < self._limit_per_source
        )

    def add(self, connection: Connection, source: str) -> None:
        self.connections.add(connection)
        self._per_source[source] += 1

    def remove(self, connection: Connection, source: str) -> None:
        self.connections.discard(connection)
        self._per_source[source] -= 1
        if self._per_source[source] <= 0:
            del self._per_source[source]

    def end_all(self, code: int, reason: str) -> None:
        """Close every socket, each with the same code."""
        for connection in tuple(self.connections):
            connection.end(code, reason)

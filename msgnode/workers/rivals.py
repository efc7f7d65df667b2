"""Addresses that sessions of two workers hold for a moment: whose they are in the routing table.

Two workers may give one address to two sessions before they hear of each other. Rules
- An allocated address is settled by the database's unique commit: what a peer says it holds, a
  session here holds no longer. Of two that peers say they hold the later one counts, and once it
  lets go the other.
- A learned address belongs to the session with the smallest id.
So all tables end equal, whatever the order of the words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable


class Remote(Listener, Protocol):
    """A session of another worker; what it holds in the table."""

    owned: set[str]
    learned: set[str]


class Rivals:
    """One instance per worker."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._owners: dict[str, dict[str, Listener]] = {}  # of an address with several, all
        self._learners: dict[str, dict[str, Listener]] = {}

    def at(self, address: str) -> Iterator[Listener]:
        """Those that hold an address besides another one, or have spoken as it."""
        yield from self._owners.get(address, {}).values()
        yield from self._learners.get(address, {}).values()

    def own(self, session: Remote, address: str) -> Listener | None:
        """A session of another worker holds an address.

        Returns:
            The session of this worker that held it until now, and does so no longer.
        """
        session.owned.add(address)
        before = self._table.owners.get(address)
        self._table.allocate(address, session)
        if before is None or before is session:
            return None
        if before.is_here:
            return before
        rivals = self._owners.setdefault(address, {before.id: before})
        rivals[session.id] = session
        return None

    def disown(self, session: Remote, address: str) -> None:
        """A session of another worker holds an address no longer."""
        session.owned.discard(address)
        self._table.release(address, session)
        rivals = self._owners.get(address)
        if rivals is not None:
            rivals.pop(session.id, None)
            self.fall_back(address)
            if len(rivals) < 2:
                del self._owners[address]

    def fall_back(self, address: str) -> None:
        """An owner has released an address; another may have it already."""
        for session in self._owners.get(address, {}).values():
            if address not in self._table.owners:
                self._table.allocate(address, session)

    def learn(self, session: Remote, address: str) -> None:
        """A session of another worker has spoken as an address."""
        session.learned.add(address)
        before = self._table.learned.get(address)
        if before is None or before is session:
            self._table.learned[address] = session
        else:
            self.contest(address, before, session)

    def unlearn(self, session: Remote, address: str) -> None:
        """A session of another worker speaks as an address no longer."""
        session.learned.discard(address)
        if self._table.learned.get(address) is session:
            del self._table.learned[address]
        self.give_in(address, session)

    def contest(self, address: str, one: Listener, other: Listener) -> None:
        """Two sessions have spoken as one address."""
        rivals = self._learners.setdefault(address, {})
        rivals.update({one.id: one, other.id: other})
        self._table.learned[address] = rivals[min(rivals)]

    def give_in(self, address: str, session: Listener) -> None:
        """A session does not speak as an address any more: it is another's that did."""
        rivals = self._learners.get(address)
        if rivals is None:
            return
        rivals.pop(session.id, None)
        if rivals:
            self._table.learned[address] = rivals[min(rivals)]
        if len(rivals) < 2:
            del self._learners[address]

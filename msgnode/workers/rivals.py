"""Decides whose an address is in the routing table while sessions of two workers hold it.

Two workers may give one address to two sessions before they hear of each other. Rules
- The database's unique commit decides an allocated address: what a peer announces as held, a
  session here no longer holds. Of two announced by peers the later one counts, and once it releases
  the address the other.
- A learned address belongs to the session with the smallest id.
So all tables become equal, whatever the order of the announcements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgnode.bus.ports import Listener
from msgnode.bus.table import RoutingTable


class Remote(Listener, Protocol):
    """A session of another worker, with what it holds in the table."""

    owned: set[str]
    learned: set[str]


class Rivals:
    """One instance per worker."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._owners: dict[str, dict[str, Listener]] = {}  # all holders of an address with several
        self._learners: dict[str, dict[str, Listener]] = {}

    def at(self, address: str) -> Iterator[Listener]:
        """The sessions that hold an address besides its owner, or have spoken as it."""
        yield from self._owners.get(address, {}).values()
        yield from self._learners.get(address, {}).values()

    def own(self, session: Remote, address: str) -> Listener | None:
        """Add an address held by a session of another worker.

        Returns:
            The session of this worker that has lost the address by that, if any.
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
        """Remove an address of a session of another worker."""
        session.owned.discard(address)
        self._table.release(address, session)
        rivals = self._owners.get(address)
        if rivals is not None:
            rivals.pop(session.id, None)
            self.fall_back(address)
            if len(rivals) < 2:
                del self._owners[address]

    def fall_back(self, address: str) -> None:
        """Give a released address to another holder, if there is one."""
        for session in self._owners.get(address, {}).values():
            if address not in self._table.owners:
                self._table.allocate(address, session)

    def learn(self, session: Remote, address: str) -> None:
        """Note that a session of another worker has spoken as an address."""
        session.learned.add(address)
        before = self._table.learned.get(address)
        if before is None or before is session:
            self._table.learned[address] = session
        else:
            self.contest(address, before, session)

    def unlearn(self, session: Remote, address: str) -> None:
        """Note that a session of another worker no longer speaks as an address."""
        session.learned.discard(address)
        if self._table.learned.get(address) is session:
            del self._table.learned[address]
        self.give_in(address, session)

    def contest(self, address: str, one: Listener, other: Listener) -> None:
        """Decide between two sessions that have spoken as one address."""
        rivals = self._learners.setdefault(address, {})
        rivals.update({one.id: one, other.id: other})
        self._table.learned[address] = rivals[min(rivals)]

    def give_in(self, address: str, session: Listener) -> None:
        """Remove an address from a session, because another session has it."""
        rivals = self._learners.get(address)
        if rivals is None:
            return
        rivals.pop(session.id, None)
        if rivals:
            self._table.learned[address] = rivals[min(rivals)]
        if len(rivals) < 2:
            del self._learners[address]

"""The routing table: which session listens to which address, in this worker's memory.

Four layers, looked up in this order (reference 5):
  owners       an allocated or claimed address -> its session; nobody else hears it
  subscribers  an address -> every session that subscribed it
  runtimes     a runtime URL -> its sessions, newest last; holds for everything below the URL
  learned      an address seen as `from` -> the session that used it first, while its socket is open
An earlier layer always wins, so that what was learned yields to what is allocated.

`returns` remembers which of several sessions of one runtime URL asked, for the answer's way back.
"""

from __future__ import annotations

from collections import OrderedDict

from msgnode.core import addresses

from .ports import Listener

MAX_RETURNS = 10_000


class RoutingTable:
    """All look-ups are dictionary look-ups; their cost does not grow with the table."""

    def __init__(self) -> None:
        self.owners: dict[str, Listener] = {}
        self.learned: dict[str, Listener] = {}
        self.runtimes: dict[str, list[Listener]] = {}
        self._subscribers: dict[str, dict[Listener, None]] = {}
        self._fan_out: dict[str, tuple[Listener, ...]] = {}
        self._returns: OrderedDict[tuple[str, str], Listener] = OrderedDict()

    # --- look-ups ---------------------------------------------------------------------------------

    def listeners(self, address: str) -> tuple[Listener, ...]:
        """Who listens to exactly this address; an owner hears alone."""
        owner = self.owners.get(address)
        if owner is not None:
            return (owner,)
        found = self._fan_out.get(address)
        if found is None and (subscribers := self._subscribers.get(address)):
            found = self._fan_out[address] = tuple(subscribers)
        return found or ()

    def at_runtime(self, address: str) -> Listener | None:
        """The session of the runtime this address is or lies below, the longest URL first."""
        sessions = self.runtimes.get(address)
        if sessions:
            return _newest(sessions)
        for prefix in addresses.ancestors(address):
            sessions = self.runtimes.get(prefix)
            if sessions:
                token = address[len(prefix) + 1 :].encode()
                named = [session for session in sessions if session.token == token]
                return named[0] if named else _newest(sessions)
        return None

    def returning(self, to: str, id_key: str) -> Listener | None:
        """Who asked the request that this response answers, if it had to be remembered.

        It stays remembered: a provisional answer is followed by another (reference 1.5).
        """
        asked = self._returns.get((to, id_key)) if self._returns else None
        return asked if asked is not None and self.knows(asked) else None

    def knows(self, session: Listener) -> bool:
        """Whether the session has not ended."""
        return session in self.runtimes.get(session.runtime_url, ())

    def owner_of(self, address: str) -> Listener | None:
        """Whose address this is: the owner of it, or of the nearest address above it."""
        found = self._held(address)
        return found if found is not None else self._learned_above(address)

    # --- changes ----------------------------------------------------------------------------------

    def allocate(self, address: str, session: Listener) -> None:
        self.owners[address] = session

    def release(self, address: str, session: Listener) -> None:
        if self.owners.get(address) is session:
            del self.owners[address]

    def subscribe(self, address: str, session: Listener) -> None:
        self._subscribers.setdefault(address, {})[session] = None
        self._fan_out.pop(address, None)

    def unsubscribe(self, address: str, session: Listener) -> None:
        subscribers = self._subscribers.get(address)
        if subscribers and subscribers.pop(session, self) is not self:
            self._fan_out.pop(address, None)
            if not subscribers:
                del self._subscribers[address]

    def subscribers(self, address: str) -> tuple[Listener, ...]:
        return tuple(self._subscribers.get(address, ()))

    def add_runtime(self, session: Listener) -> None:
        """Enter a session under its runtime URL as the newest of that runtime."""
        self.remove_runtime(session)
        self.runtimes.setdefault(session.runtime_url, []).append(session)

    def remove_runtime(self, session: Listener) -> None:
        sessions = self.runtimes.get(session.runtime_url)
        if sessions and session in sessions:
            sessions.remove(session)
            if not sessions:
                del self.runtimes[session.runtime_url]

    def learn(self, address: str, session: Listener) -> None:
        self.learned[address] = session

    def forget(self, address: str, session: Listener) -> None:
        if self.learned.get(address) is session:
            del self.learned[address]

    def remember_return(self, sender: str, id_key: str, session: Listener) -> None:
        self._returns[sender, id_key] = session
        if len(self._returns) > MAX_RETURNS:
            self._returns.popitem(last=False)

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of each layer, for metrics."""
        return {
            "allocations": len(self.owners),
            "subscribed_addresses": len(self._subscribers),
            "runtimes": len(self.runtimes),
            "learned": len(self.learned),
        }

    def _held(self, address: str) -> Listener | None:
        for url in (address, *addresses.ancestors(address)):
            if (owner := self.owners.get(url)) is not None:
                return owner
        return self.at_runtime(address) or self.at_runtime(addresses.runtime_twin(address))

    def _learned_above(self, address: str) -> Listener | None:
        for url in (address, *addresses.ancestors(address)):
            if (owner := self.learned.get(url)) is not None:
                return owner
        return None


def _newest(sessions: list[Listener]) -> Listener:
    """The newest session with a socket, else the newest."""
    for session in reversed(sessions):
        if session.is_connected:
            return session
    return sessions[-1]

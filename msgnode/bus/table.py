"""The routing table: which session listens to which address, in this worker's memory.

Four layers, looked up in this order (docs/reference/messages.md, section 5):
  owners       an allocated or claimed address -> its session; nobody else hears it
  subscribers  an address -> every session that subscribed it
  runtimes     a runtime URL -> its sessions, newest last; applies to everything below the URL
  learned      an address seen as `from` -> the session that used it first, while its socket is open
An earlier layer always wins, so that an allocated address overrides a learned one.

`probes` are the sessions with which workers test their own message path, at addresses of the node.
They are separate, so that they are neither counted nor listed.

`peers` maps a foreign domain to the runtime URL of the session that leads to its node. Runtimes of
those in `visited` may speak here beside it: what is sent to their addresses goes to the node still.

`return_paths` tells which session sent a request, where its address does not: of several sessions
of one runtime URL, and of such a visitor. `shared` has the runtime URLs of both.

Sessions of other workers are in the same table. With several workers an observer is notified of
changes that concern sessions of this worker, and tells the other workers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from msgnode.core import addresses

from .ports import Layer, Listener, TableObserver
from .return_paths import ReturnPaths


class RoutingTable:
    """The routing table of one worker. The cost of a look-up does not grow with its size."""

    def __init__(self) -> None:
        self._observer: TableObserver | None = None
        self.owners: dict[str, Listener] = {}
        self.learned: dict[str, Listener] = {}
        self.probes: dict[str, Listener] = {}
        self.runtimes: dict[str, list[Listener]] = {}
        self.shared: set[str] = set()  # runtime URLs whose requests need a return path
        self.peers: dict[str, str] = {}  # domain -> runtime URL
        self.visited: frozenset[str] = frozenset()  # domains of peers
        self.legacy: frozenset[str] = frozenset()  # domains of peers that are no nodes
        self._runtime_urls: list[str] = []  # of `runtimes`, sorted
        self._subscribers: dict[str, dict[Listener, None]] = {}
        self._fan_out: dict[str, tuple[Listener, ...]] = {}
        self._ids: dict[str, frozenset[str]] = {}  # of the fan-outs
        self.return_paths = ReturnPaths()

    def observe(self, observer: TableObserver) -> None:
        """Set the observer of changes; there is at most one."""
        self._observer = observer

    # --- look-ups ---------------------------------------------------------------------------------

    def listeners(self, address: str) -> tuple[Listener, ...]:
        """The listeners of exactly this address: its owner alone, else its subscribers."""
        owner = self.owners.get(address)
        if owner is not None:
            return (owner,)
        found = self._fan_out.get(address)
        if found is None and (subscribers := self._subscribers.get(address)):
            found = self._fan_out[address] = tuple(subscribers)
        return found or ()

    def ids(self, address: str, listeners: tuple[Listener, ...]) -> frozenset[str]:
        """The ids of several listeners of an address; the same set while they stay the same."""
        found = self._ids.get(address)
        if found is None or self._fan_out.get(address) is not listeners:
            found = frozenset(each.id for each in listeners)
            if self._fan_out.get(address) is listeners:
                self._ids[address] = found
        return found

    def at_runtime(self, address: str) -> Listener | None:
        """The session of the runtime that this address is or lies below; the longest URL wins."""
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

    def runtimes_below(self, address: str) -> Iterator[str]:
        """The runtime URLs below the address."""
        prefix = f"{address}/"
        at = bisect_left(self._runtime_urls, prefix)
        while at < len(self._runtime_urls) and self._runtime_urls[at].startswith(prefix):
            yield self._runtime_urls[at]
            at += 1

    def requester_of(self, to: str, id_key: str) -> Listener | None:
        """The session that sent the request this response answers, if that was remembered."""
        path = self.return_paths.find(to, id_key)
        if path is not None:
            for session in self.runtimes.get(path.runtime_url, ()):
                if session.id == path.asker:
                    return session
        return None

    def peer_of(self, address: str) -> Listener | None:
        """The session of the peer that leads to an address of a foreign domain."""
        parsed = addresses.parse(address)
        if not parsed.domain or parsed.scheme == "global":
            return None
        sessions = self.runtimes.get(self.peers.get(parsed.home, ""))
        return _newest(sessions) if sessions else None

    def leads_to_node(self, address: str, session: Listener) -> bool:
        """Whether a session leads to the node of the address's foreign domain."""
        if not self.peers:
            return False
        home = addresses.parse(address).home
        return session.runtime_url == self.peers.get(home) and home not in self.legacy

    def knows(self, session: Listener) -> bool:
        """Whether the session is in the table, that is, has not ended."""
        return session in self.runtimes.get(session.runtime_url, ())

    def owner_of(self, address: str) -> Listener | None:
        """The owner of the address, or of the nearest address above it."""
        found = self._held(address)
        return found if found is not None else self._learned_above(address)

    # --- changes ----------------------------------------------------------------------------------

    def allocate(self, address: str, session: Listener) -> None:
        """Make the session the owner of the address."""
        self.owners[address] = session
        self._tell(Layer.OWNED, address, session, True)

    def release(self, address: str, session: Listener) -> None:
        """End the session's ownership of the address."""
        if self.owners.get(address) is session:
            del self.owners[address]
        self._tell(Layer.OWNED, address, session, False)

    def subscribe(self, address: str, session: Listener) -> None:
        """Subscribe the session to the address."""
        self._subscribers.setdefault(address, {})[session] = None
        self._forget_fan_out(address)
        self._tell(Layer.SUBSCRIBED, address, session, True)

    def unsubscribe(self, address: str, session: Listener) -> None:
        """End the session's subscription to the address."""
        subscribers = self._subscribers.get(address)
        if subscribers and subscribers.pop(session, self) is not self:
            self._forget_fan_out(address)
            if not subscribers:
                del self._subscribers[address]
            self._tell(Layer.SUBSCRIBED, address, session, False)

    def is_heard_here(self, address: str) -> bool:
        """Whether a session of this worker has subscribed exactly this address."""
        return any(each.is_here for each in self._subscribers.get(address, ()))

    def is_held_here(self, address: str) -> bool:
        """Whether a session of this worker owns exactly this address, or has it as runtime URL."""
        owner = self.owners.get(address)
        if owner is not None and owner.is_here:
            return True
        return any(each.is_here for each in self.runtimes.get(address, ()))

    def is_learned_here(self, address: str) -> bool:
        """Whether exactly this address is learned from a session of this worker."""
        learner = self.learned.get(address)
        return learner is not None and learner.is_here

    def subscribers(self, address: str) -> tuple[Listener, ...]:
        """The subscribers of exactly this address."""
        return tuple(self._subscribers.get(address, ()))

    def add_runtime(self, session: Listener) -> None:
        """Add a session under its runtime URL, in the order of `bound_at`."""
        self._take_out(session)
        sessions = self.runtimes.get(session.runtime_url)
        if sessions is None:
            sessions = self.runtimes[session.runtime_url] = []
            insort(self._runtime_urls, session.runtime_url)
        at = len(sessions)
        while at and sessions[at - 1].bound_at > session.bound_at:
            at -= 1
        sessions.insert(at, session)
        if len(sessions) > 1:
            self.shared.add(session.runtime_url)
        self.touch(session)

    def remove_runtime(self, session: Listener) -> None:
        """Remove a session that has ended."""
        if self._take_out(session) and self._observer is not None and session.is_here:
            self._observer.left(session)

    def add_probe(self, session: Listener) -> None:
        """Add the session with which a worker tests its message path."""
        self.probes[session.runtime_url] = session
        if self._observer is not None and session.is_here:
            self._observer.entered(session)

    def remove_probe(self, session: Listener) -> None:
        """Remove the session with which a worker tests its message path."""
        if self.probes.get(session.runtime_url) is not session:
            return
        del self.probes[session.runtime_url]
        if self._observer is not None and session.is_here:
            self._observer.left(session)

    def touch(self, session: Listener) -> None:
        """Notify the observer that a session's connection or speaker has changed."""
        if self._observer is not None and session.is_here:
            self._observer.entered(session)

    def learn(self, address: str, session: Listener) -> None:
        """Note the session as the first to use the address as `from`."""
        before = self.learned.get(address)
        self.learned[address] = session
        if self._observer is not None and session.is_here and before is not session:
            self._observer.changed(Layer.LEARNED, address, session, True, before)

    def forget(self, address: str, session: Listener) -> None:
        """Undo `learn`."""
        if self.learned.get(address) is session:
            del self.learned[address]
        self._tell(Layer.LEARNED, address, session, False)

    def replace(
        self,
        before: Listener,
        after: Listener,
        owned: Iterable[str],
        subscribed: Iterable[str],
        learned: Iterable[str] = (),
    ) -> None:
        """Replace one object of a session by another in everything it holds.

        The observer is not notified, because who holds what has not changed.
        """
        before.successor, after.successor = after, None
        for address in owned:
            if self.owners.get(address) is before:
                self.owners[address] = after
        for address in subscribed:
            subscribers = self._subscribers.get(address, {})
            if before in subscribers:
                self._subscribers[address] = {
                    after if each is before else each: None for each in subscribers
                }
                self._forget_fan_out(address)
        for address in learned:
            if self.learned.get(address) is before:
                self.learned[address] = after
        sessions = self.runtimes.get(before.runtime_url, [])
        sessions[:] = [after if each is before else each for each in sessions]

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of each layer, for metrics."""
        return {
            "allocations": len(self.owners),
            "subscribed_addresses": len(self._subscribers),
            "runtimes": len(self.runtimes),
            "learned": len(self.learned),
        }

    def _forget_fan_out(self, address: str) -> None:
        self._fan_out.pop(address, None)
        self._ids.pop(address, None)

    def _tell(self, layer: Layer, address: str, session: Listener, holds: bool) -> None:
        if self._observer is not None and session.is_here:
            self._observer.changed(layer, address, session, holds)

    def _take_out(self, session: Listener) -> bool:
        sessions = self.runtimes.get(session.runtime_url)
        if not sessions or session not in sessions:
            return False
        sessions.remove(session)
        if len(sessions) < 2:
            self.shared.discard(session.runtime_url)
        if not sessions:
            del self.runtimes[session.runtime_url]
            del self._runtime_urls[bisect_left(self._runtime_urls, session.runtime_url)]
        return True

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

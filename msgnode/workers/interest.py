"""Who listens to what on the other workers: told to those whose sessions send there, to no other.

In the directory a worker is entered at each address that sessions of its own have subscribed, and
as a watcher at each that its sessions have sent something to. Whoever enters itself reads after
that who else is there; so of two that do it at once at least one finds the other.

Rules
- Before a message is routed its recipient is watched: every worker that listens there has said
  which of its sessions do, and says every change. Their sessions stand in the routing table then.
- What is not watched any more, because so much else is, is taken out of the table.
- An answer to a subscription waits until this worker is entered, and until the watchers know of it;
  while the directory does not take it, all workers are told instead, and it is entered later.
- Of a message to listeners that could not be found out, those miss something that are found later
  and were not known then: they are told of a gap.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import Any

from msgnode.bus.ports import Layer, Listener
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import after_barrier
from msgnode.core.faults import FAULTS
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault

from .peer import Peer
from .protocol import AddressAdded, AddressRemoved, Subscribers, Unwatch
from .remote import RemoteSession
from .transport import PeerTransport

MOST_WATCHED = 50_000
MOST_MISSED = 10_000
_AT_ONCE = 200  # addresses entered again before Redis is waited for
_WATCHER = "?"  # before the epoch of a worker that sends to an address
_FORGOTTEN_AFTER = 60.0  # seconds that an unknown epoch is taken for that of a worker that comes


class Interest:
    """One instance per worker.

    `look_for` finds out in the background who listens to addresses; `is_leaving` says whether a
    session is on its way to another worker.
    """

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: PeerTransport,
        remotes: Mapping[str, RemoteSession],
        is_retired: Callable[[str], bool],
    ) -> None:
        self.look_for: Callable[[Collection[str]], None] = lambda addresses: None
        self.is_leaving: Callable[[str], bool] = lambda session_id: False
        self._directory = directory
        self._table = table
        self._transport = transport
        self._remotes = remotes
        self._is_retired = is_retired
        self._epoch = transport.me.epoch
        self._watched: OrderedDict[str, bool] = OrderedDict()  # -> whether all have said who
        self._watchers: dict[str, set[str]] = {}  # epoch -> addresses of ours that it watches
        self._unknown: dict[str, float] = {}  # epochs of watchers nobody has heard of, since when
        self._listed: set[str] = set()  # addresses that this worker is entered at
        self._new: list[str] = []  # of these, those of this turn of the loop
        self._owed: set[str] = set()  # of these, those that the directory did not take
        self._entering: set[asyncio.Task[None]] = set()
        self._missed: OrderedDict[str, frozenset[str]] = OrderedDict()  # -> sessions that did not
        self._is_started = False

    async def stop(self) -> None:
        """Enter nothing more."""
        for task in self._entering:
            task.cancel()

    # --- what our sessions listen to --------------------------------------------------------------

    def changed(self, address: str, session: Listener, holds: bool) -> None:
        """A session of this worker has subscribed an address, or listens there no longer."""
        message = AddressAdded if holds else AddressRemoved
        said = message(session.id, Layer.SUBSCRIBED.value, [address])
        if address in self._owed:
            self._transport.tell(said, len(address))
        else:
            told = [each for each, watched in self._watchers.items() if address in watched]
            self._transport.tell_some(told, said, len(address))
        if holds:
            self.arrived((address,))
        else:
            self._unlist(address)

    def arrived(self, addresses: Iterable[str]) -> None:
        """Sessions of this worker listen there, as they did at another."""
        if not self._is_started:
            return
        for address in addresses:
            if address not in self._listed:
                self._listed.add(address)
                if not self._new:
                    asyncio.get_running_loop().call_soon(self._enter_new)
                self._new.append(address)

    def handed_off(self, addresses: Collection[str], epoch: str) -> None:
        """A session that listens there is with another worker now, and still in our table."""
        for address in addresses:
            self._directory.claim(Kind.LISTENERS, address, epoch)
            self._unlist(address)
            self._watched.setdefault(address, False)
        if self._transport.takes:  # else nobody sends anything from here any more
            self.look_for([each for each in addresses if not self._watched[each]])

    def taken(self, addresses: Iterable[str], epoch: str) -> None:
        """A session that listens there was taken from a worker that has ended."""
        for address in addresses:
            self._directory.release(Kind.LISTENERS, address, epoch)

    def barrier(self) -> asyncio.Future[None] | None:
        """Done when whoever sends to what our sessions listen to now reaches them."""
        entering = self.entered()
        if entering is None:
            return self._transport.barrier() if self._owed else self._transport.heard()
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def entered(_: object) -> None:
            heard = self._transport.barrier if self._owed else self._transport.heard
            after_barrier(heard, lambda: None if found.done() else found.set_result(None))

        entering.add_done_callback(entered)
        return found

    def entered(self) -> asyncio.Future[Any] | None:
        """Done when this worker is entered at what its sessions listen to now, or cannot be."""
        self._enter_new()
        entering = self._entering
        return asyncio.gather(*entering, return_exceptions=True) if entering else None

    def _unlist(self, address: str) -> None:
        if address in self._listed and not self._table.is_heard_here(address):
            self._listed.discard(address)
            self._owed.discard(address)
            self._directory.release(Kind.LISTENERS, address, self._epoch)
            for watched in self._watchers.values():
                watched.discard(address)

    def _enter_new(self) -> None:
        addresses, self._new = self._new, []
        if addresses:
            task = asyncio.create_task(self._enter_some(addresses))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter_some(self, addresses: Collection[str]) -> None:
        with FAULTS.kept_to("directory"):
            try:
                await self._enter(addresses)
            except RedisFault:
                for address in self._listed.intersection(addresses) - self._owed:
                    self._owed.add(address)
                    self._transport.tell(Subscribers(address, self._ids(address)))

    async def _enter(self, addresses: Collection[str]) -> None:
        """Be entered at these addresses, and tell who watches them. Raises RedisFault."""
        found = await self._directory.join(Kind.LISTENERS, addresses, self._epoch)
        self._owed.difference_update(addresses)
        for address, members in found.items():
            if address not in self._listed:
                continue
            new: list[str] = []
            for epoch in self._others(address, members, is_watching=True):
                watched = self._watchers.setdefault(epoch, set())
                if address not in watched:
                    watched.add(address)
                    new.append(epoch)
            if new:
                said = Subscribers(address, self._ids(address))
                self._transport.tell_some(new, said, 40 * len(said.sessions))

    def _ids(self, address: str) -> list[str]:
        """The sessions of this worker that listen there, and those that are about to leave it."""
        return [
            each.id
            for each in self._table.subscribers(address)
            if each.is_here or self.is_leaving(each.id)
        ]

    # --- what our sessions send to ----------------------------------------------------------------

    def hears(self, address: str) -> bool:
        """Whether all that listen to an address, on whatever worker, are in the routing table."""
        if not self._watched.get(address, False):
            return False
        self._watched.move_to_end(address)
        return True

    def accepts(self, address: str) -> bool:
        """Whether it matters here who listens to an address."""
        return address in self._watched

    @property
    def number_watched(self) -> int:
        """How many addresses are watched."""
        return len(self._watched)

    async def watch(self, addresses: Collection[str]) -> dict[str, set[str]]:
        """Be entered as a watcher; by address, the other workers that listen. Raises RedisFault."""
        for address in addresses:
            self._watched.setdefault(address, False)
            self._watched.move_to_end(address)
        while len(self._watched) > max(MOST_WATCHED, len(addresses)):
            self._unwatch(next(iter(self._watched)))
        found = await self._directory.join(Kind.LISTENERS, addresses, _WATCHER + self._epoch)
        return {
            address: self._others(address, members, is_watching=False)
            for address, members in found.items()
        }

    def know(self, address: str) -> None:
        """All that listen to the address are in the routing table, and every change comes."""
        if address not in self._watched:
            return
        self._watched[address] = True
        self._watched.move_to_end(address)
        heard = self._missed.pop(address, None)
        if heard is not None:
            for each in self._table.subscribers(address):
                if isinstance(each, RemoteSession) and each.id not in heard:
                    each.missed()

    def miss(self, address: str) -> None:
        """A message to the address reaches only who is known to listen there."""
        heard = frozenset(each.id for each in self._table.subscribers(address))
        self._missed[address] = heard & self._missed.get(address, heard)
        if len(self._missed) > MOST_MISSED:
            self._missed.popitem(last=False)

    def _unwatch(self, address: str) -> None:
        del self._watched[address]
        self._directory.release(Kind.LISTENERS, address, _WATCHER + self._epoch)
        peers: dict[str, Peer] = {}
        for session in self._table.subscribers(address):
            if isinstance(session, RemoteSession):
                peers[session.peer.epoch] = session.peer
                session.subscribed.discard(address)
                self._table.unsubscribe(address, session)
        for peer in peers.values():
            peer.out.put(Unwatch([address]))

    # --- what others say --------------------------------------------------------------------------

    def asked(self, peer: Peer, address: str) -> None:
        """Another worker watches an address from now on."""
        if address in self._listed:
            self._watchers.setdefault(peer.epoch, set()).add(address)
        ids = self._ids(address)
        peer.out.put(Subscribers(address, ids), len(address) + 40 * len(ids))

    def heard(self, peer: Peer, message: Subscribers | Unwatch) -> None:
        """Another worker says who listens there, all of them; or watches addresses no longer."""
        if isinstance(message, Unwatch):
            self._watchers.get(peer.epoch, set()).difference_update(message.addresses)
            return
        address, ids = message.address, set(message.sessions)
        if not self.accepts(address):
            peer.out.put(Unwatch([address]))
            return
        for session in self._table.subscribers(address):
            if not isinstance(session, RemoteSession) or session.peer is not peer:
                continue
            if session.id not in ids:
                session.subscribed.discard(address)
                self._table.unsubscribe(address, session)
        for id_ in message.sessions:
            remote = self._remotes.get(id_)
            if remote is not None:
                self.add(remote, address)

    def add(self, session: RemoteSession, address: str) -> None:
        """A session of another worker listens to an address that is watched."""
        session.subscribed.add(address)
        self._table.subscribe(address, session)

    def forget(self, epoch: str) -> None:
        """A worker has ended: it watches nothing any more."""
        for address in self._watchers.pop(epoch, ()):
            self._directory.release(Kind.LISTENERS, address, _WATCHER + epoch)

    # --- kept up ----------------------------------------------------------------------------------

    def begin(self, addresses: Iterable[str]) -> None:
        """Sessions of this worker listen there, which `enter_again` is to say."""
        self._is_started = True
        self._listed.update(addresses)

    async def enter_again(self, pause: float) -> None:
        """Be entered at everything once more. Raises RedisFault."""
        for some in _in_parts(self._listed):
            await self._enter([each for each in some if each in self._listed])
            await asyncio.sleep(pause)
        for some in _in_parts(self._watched):
            found = await self.watch([each for each in some if each in self._watched])
            new = [each for each, epochs in found.items() if epochs - self._known_at(each)]
            self._watched.update(dict.fromkeys(new, False))
            self.look_for(new)
            await asyncio.sleep(pause)

    def look_after(self) -> None:
        """Do again what could not be done, and forget who has not been heard of for long."""
        if self._owed and not self._entering:
            self._new.extend(self._owed)
            self._enter_new()
        if self._missed:
            self.look_for(list(self._missed))
        for epoch in tuple(self._watchers):
            if self._has_ended(epoch):
                self.forget(epoch)

    def _others(self, address: str, members: Iterable[str], is_watching: bool) -> set[str]:
        """The other workers that listen to an address, or watch it."""
        found: set[str] = set()
        for member in members:
            epoch = member.removeprefix(_WATCHER)
            if self._has_ended(epoch):
                self._directory.release(Kind.LISTENERS, address, member)
            elif epoch != self._epoch and is_watching == (member != epoch):
                found.add(epoch)
        return found

    def _has_ended(self, epoch: str) -> bool:
        """Whether nobody has heard of a worker for so long that it is not one that comes."""
        if not self._is_retired(epoch):
            self._unknown.pop(epoch, None)
            return False
        now = monotonic()
        return now - self._unknown.setdefault(epoch, now) > _FORGOTTEN_AFTER

    def _known_at(self, address: str) -> set[str]:
        """The workers whose sessions the routing table has as listeners of an address."""
        there = self._table.subscribers(address)
        return {each.peer.epoch for each in there if isinstance(each, RemoteSession)}


def _in_parts(addresses: Iterable[str]) -> list[list[str]]:
    all_ = list(addresses)
    return [all_[start : start + _AT_ONCE] for start in range(0, len(all_), _AT_ONCE)]

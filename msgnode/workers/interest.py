"""The names that this worker watches: the routing table has who is at them on other workers.

Rules
- Before a message is routed the names of its recipient are watched: every worker that is entered
  there (own_names.py) has told which of its sessions are, and announces every change. These
  sessions are in the routing table (replication.py).
- A name that nothing was sent to for a while is no longer watched, and removed from the table, so
  that Redis does not keep the addresses of who has gone; nor are the oldest at the limit of names.
- If the listeners of a message could not be found out, those that are found later have missed it:
  they are told of a gap. So it is while another worker is not heard of: there somebody may begin to
  listen, who is answered without this worker.
- So are those at an address whose response could not be delivered: nobody is answered for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from time import monotonic

from msgnode.bus.ports import Layer
from msgnode.bus.table import RoutingTable
from msgnode.core.addresses import names_of
from msgnode.redis.directory import Directory, Kind

from .linked_worker import LinkedWorker
from .own_names import AT_ONCE, WATCHES, OwnNames, in_parts
from .protocol import Unwatch
from .remote_sessions import RemoteSession, RemoteSessions
from .transport import LinkTransport

MOST_WATCHED = 50_000
MOST_MISSED = 10_000
UNUSED_SECONDS = 300.0
"""A name that nothing is sent to is watched for this long."""


class Interest:
    """One instance per worker."""

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: LinkTransport,
        own: OwnNames,
        remotes: RemoteSessions,
    ) -> None:
        self._directory = directory
        self._table = table
        self._own = own
        self._remotes = remotes
        self._epoch = transport.me.epoch
        self._transport = transport
        self._now = monotonic()  # of the last look: exact enough, and costs a message nothing
        self._watched: OrderedDict[str, float] = OrderedDict()  # -> when it was last used, in order
        self._known: set[str] = set()  # of the watched: where all have said who is there
        self._missed: OrderedDict[str, frozenset[str]] = OrderedDict()  # -> sessions that did not
        self._unanswered: OrderedDict[str, None] = OrderedDict()  # a response was dropped

    def hears(self, address: str) -> bool:
        """Whether the table has everybody at an address, and those that hold what is above it."""
        if not self._transport.hears_all:
            return False
        watched, known, now = self._watched, self._known, self._now
        for name in names_of(address):
            if name not in known:
                return False
            watched[name] = now
            watched.move_to_end(name)
        return True

    def knows(self, name: str) -> bool:
        """Whether the table has everybody at exactly this name who was there when it was asked."""
        return name in self._known

    def may_miss(self, address: str) -> bool:
        """Whether somebody may listen to an address who is not in the table."""
        return not (self._transport.hears_all and self.knows(address))

    def accepts(self, name: str) -> bool:
        """Whether changes of who is at a name matter here."""
        return name in self._watched or self._own.holds(name)

    def watches(self, name: str) -> bool:
        """Whether a name is watched here."""
        return name in self._watched

    @property
    def watched(self) -> Collection[str]:
        """The watched names."""
        return list(self._watched)

    @property
    def missed(self) -> list[str]:
        """The addresses whose messages may not have reached all listeners."""
        return [*self._missed, *(each for each in self._unanswered if each not in self._missed)]

    async def watch(self, names: Collection[str]) -> dict[str, set[str]]:
        """Enter this worker as a watcher; the other workers there by name. Raises RedisFault."""
        for name in names:
            self.expect(name)
        while len(self._watched) > max(MOST_WATCHED, len(names)):
            self._unwatch(next(iter(self._watched)))
        return await self.enter(names)

    async def enter(self, names: Collection[str]) -> dict[str, set[str]]:
        """Enter this worker at watched names; the others there by name. Raises RedisFault."""
        found = await self._directory.join(names, WATCHES + self._epoch)
        return {name: self.holders(name, members) for name, members in found.items()}

    def holders(self, name: str, members: Iterable[str]) -> set[str]:
        """The other workers with sessions at a name, according to the directory."""
        return {e for e, kind in self._own.others(name, members) if kind != WATCHES}

    def expect(self, name: str) -> None:
        """Accept announcements about a name from now on."""
        self._watched[name] = self._now
        self._watched.move_to_end(name)

    def expect_all(self, names: Iterable[str]) -> list[str]:
        """Accept announcements about several names; return those that are not completely known."""
        wanted = list(names)
        for each in wanted:
            self._watched.setdefault(each, self._now)
        return [each for each in wanted if each not in self._known]

    def know(self, name: str) -> None:
        """Note that the table has everybody at a name, and that every change is announced."""
        if name not in self._watched:
            return
        self._known.add(name)
        self.expect(name)
        if not self._transport.hears_all:
            return
        missed: dict[RemoteSession, None] = {}
        if name in self._missed:
            heard = self._missed.pop(name)
            subscribers = self._table.subscribers(name)
            missed.update(
                (each, None)
                for each in subscribers
                if isinstance(each, RemoteSession) and each.id not in heard
            )
        if name in self._unanswered:
            del self._unanswered[name]
            missed.update(dict.fromkeys(self._remotes.at(name)))
        for each in missed:
            each.missed()

    def doubt(self, names: Iterable[str]) -> None:
        """Note that who is at these names may have changed: query again when needed."""
        self._known.difference_update(names)

    def miss(self, address: str) -> None:
        """Note that a message to the address reaches only the listeners that are known."""
        heard = frozenset(each.id for each in self._table.subscribers(address))
        self._missed[address] = heard & self._missed.get(address, heard)
        if len(self._missed) > MOST_MISSED:
            self._missed.popitem(last=False)

    def miss_response(self, address: str) -> None:
        """Note that a response to the address was dropped, because it is not known whose it is."""
        self._unanswered[address] = None
        if len(self._unanswered) > MOST_MISSED:
            self._unanswered.popitem(last=False)

    def look_after(self) -> None:
        """Stop watching names that nothing was sent to for a while, some at a time."""
        self._now = monotonic()
        oldest = list(islice(self._watched.items(), AT_ONCE))
        unused = [name for name, used in oldest if self._now - used >= UNUSED_SECONDS]
        for name in unused:
            self._unwatch(name)
        if len(unused) == AT_ONCE:
            asyncio.get_running_loop().call_soon(self.look_after)

    def _unwatch(self, name: str) -> None:
        del self._watched[name]
        self._known.discard(name)
        self._directory.release(Kind.NAME, name, WATCHES + self._epoch)
        if not self._own.holds(name):
            for other, dropped in self.evict(name).items():
                other.out.put(Unwatch([name], dropped), len(name) + 40 * len(dropped))

    # --- who stands in the table for what is watched ----------------------------------------------

    def needs(self, session: RemoteSession) -> bool:
        """Whether a session of another worker is at a name that matters here.

        So is one that has just left this worker: others that are told may still send to it here.
        """
        is_at_a_name = bool(session.owned or session.subscribed or session.learned)
        is_needed = is_at_a_name or self._own.is_leaving(session.id)
        return is_needed or self.accepts(session.runtime_url)

    def evict(self, name: str) -> dict[LinkedWorker, list[str]]:
        """Remove everybody at a name.

        Returns:
            By worker, the sessions that are no longer in the table.
        """
        dropped: dict[LinkedWorker, list[str]] = {}
        for session in tuple(self._remotes.at(name)):
            for layer in Layer:
                self._remotes.take_from(session, layer, name)
            ids = dropped.setdefault(session.worker, [])
            if not self.needs(session):
                ids.append(session.id)
                self._remotes.remove(session)
        return dropped


class InterestRenewal:
    """Queries watched names again where the knowledge of who is there may be incomplete.

    One instance per worker.

    Args:
        interest: the watched names.
        names: the names of this worker's sessions.
        remotes: the known sessions of other workers.
        transport: tells whether this worker accepts sessions.
        look_for: queries in the background who is at some names.
    """

    def __init__(
        self,
        interest: Interest,
        names: OwnNames,
        remotes: RemoteSessions,
        transport: LinkTransport,
        look_for: Callable[[Collection[str]], None],
    ) -> None:
        self._interest = interest
        self._names = names
        self._remotes = remotes
        self._transport = transport
        self._look_for = look_for

    def ask_again(self, name: str) -> None:
        """Query a name again, because what is known of it may be incomplete."""
        if self._interest.watches(name):
            self._interest.doubt([name])
            self._look_for([name])

    def handed_off(self, held: Collection[str], heard: Collection[str], epoch: str) -> None:
        """Note a session that has moved to another worker, and is still in this table."""
        self._names.gone(held, heard, epoch)
        if self._transport.takes:  # else nothing more is sent from here
            self._look_for(self._interest.expect_all({*held, *heard}))

    async def enter_again(self, pause: float) -> None:
        """Enter this worker everywhere once more. Raises RedisFault."""
        interest = self._interest
        for some in in_parts(interest.watched):
            found = await interest.enter([each for each in some if interest.watches(each)])
            new = [each for each, epochs in found.items() if epochs - self._known_at(each)]
            interest.doubt(new)
            self._look_for(new)
            await asyncio.sleep(pause)

    def look_after(self) -> None:
        """Retry what has failed, and watch no longer what is not used."""
        self._interest.look_after()
        if self._transport.hears_all and (missed := self._interest.missed):
            self._look_for(missed)

    def _known_at(self, name: str) -> set[str]:
        """The workers whose sessions the routing table has at a name."""
        return {each.worker.epoch for each in self._remotes.at(name)}

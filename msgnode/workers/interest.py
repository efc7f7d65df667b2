"""Which names this worker watches: who is at them on other workers stands in its routing table.

Rules
- Before a message is routed the names of its recipient are watched: every worker that is entered
  there (own_names.py) has said which of its sessions are, and says every change. They stand in the
  routing table then (copies.py).
- What is not watched any more, because so much else is, is taken out of the table.
- Of a message to listeners that could not be found out, those miss something that are found later
  and were not known then: they are told of a gap.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

from msgnode.bus.table import RoutingTable
from msgnode.core.addresses import names_of
from msgnode.redis.directory import Directory, Kind

from .own_names import WATCHES, OwnNames, in_parts
from .ports import SessionsAtNames
from .protocol import Unwatch
from .remote import RemoteSession
from .transport import PeerTransport

MOST_WATCHED = 50_000
MOST_MISSED = 10_000


class Interest:
    """One instance per worker.

    `look_for` finds out in the background who is at some names; `copies` is set before the start.
    """

    def __init__(
        self, directory: Directory, table: RoutingTable, transport: PeerTransport, own: OwnNames
    ) -> None:
        self.look_for: Callable[[Collection[str]], None] = lambda names: None
        self.copies: SessionsAtNames
        self._directory = directory
        self._table = table
        self._transport = transport
        self._own = own
        self._epoch = transport.me.epoch
        self._watched: OrderedDict[str, bool] = OrderedDict()  # -> whether all have said who
        self._missed: OrderedDict[str, frozenset[str]] = OrderedDict()  # -> sessions that did not

    def hears(self, address: str) -> bool:
        """Whether all that are at an address, or have what is above it, are in the table."""
        watched = self._watched
        for name in names_of(address):
            if not watched.get(name, False):
                return False
            watched.move_to_end(name)
        return True

    def knows(self, name: str) -> bool:
        """Whether all that are at exactly this name are in the table."""
        return self._watched.get(name, False)

    def accepts(self, name: str) -> bool:
        """Whether it matters here who is at a name."""
        return name in self._watched or self._own.holds(name)

    @property
    def number_watched(self) -> int:
        """How many names are watched."""
        return len(self._watched)

    async def watch(self, names: Collection[str]) -> dict[str, set[str]]:
        """Be entered as a watcher; by name, the other workers that are there. Raises RedisFault."""
        for name in names:
            self.expect(name)
        while len(self._watched) > max(MOST_WATCHED, len(names)):
            self._unwatch(next(iter(self._watched)))
        found = await self._directory.join(names, WATCHES + self._epoch)
        return {name: self.holders(name, members) for name, members in found.items()}

    def holders(self, name: str, members: Iterable[str]) -> set[str]:
        """The other workers that have sessions at a name, by what the directory says."""
        return {e for e, kind in self._own.others(name, members) if kind != WATCHES}

    def expect(self, name: str) -> None:
        """What is said of a name is taken in from now on."""
        self._watched.setdefault(name, False)
        self._watched.move_to_end(name)

    def know(self, name: str) -> None:
        """All that are at the name are in the routing table, and every change comes."""
        if name not in self._watched:
            return
        self._watched[name] = True
        self._watched.move_to_end(name)
        heard = self._missed.pop(name, None)
        if heard is not None:
            for each in self._table.subscribers(name):
                if isinstance(each, RemoteSession) and each.id not in heard:
                    each.missed()

    def doubt(self, names: Iterable[str]) -> None:
        """Who is at these names may be somebody else by now: they are asked for when needed."""
        for name in names:
            if name in self._watched:
                self._watched[name] = False

    def ask_again(self, name: str) -> None:
        """What is known of a name may not be all."""
        if name in self._watched:
            self._watched[name] = False
            self.look_for([name])

    def miss(self, address: str) -> None:
        """A message to the address reaches only who is known to listen there."""
        heard = frozenset(each.id for each in self._table.subscribers(address))
        self._missed[address] = heard & self._missed.get(address, heard)
        if len(self._missed) > MOST_MISSED:
            self._missed.popitem(last=False)

    def _unwatch(self, name: str) -> None:
        del self._watched[name]
        self._directory.release(Kind.NAME, name, WATCHES + self._epoch)
        if not self._own.holds(name):
            for peer, dropped in self.copies.evict(name).items():
                peer.out.put(Unwatch([name], dropped), len(name) + 40 * len(dropped))

    def handed_off(self, held: Collection[str], heard: Collection[str], epoch: str) -> None:
        """A session that is there is with another worker now, and still in our table."""
        self._own.gone(held, heard, epoch)
        names = {*held, *heard}
        if self._transport.takes:  # else nobody sends anything from here any more
            self.look_for([each for each in names if not self._watched.setdefault(each, False)])

    # --- kept up ----------------------------------------------------------------------------------

    async def enter_again(self, pause: float) -> None:
        """Be entered at everything once more. Raises RedisFault."""
        for some in in_parts(self._watched):
            found = await self.watch([each for each in some if each in self._watched])
            new = [each for each, epochs in found.items() if epochs - self._known_at(each)]
            self._watched.update(dict.fromkeys(new, False))
            self.look_for(new)
            await asyncio.sleep(pause)

    def look_after(self) -> None:
        """Do again what could not be done."""
        if self._missed:
            self.look_for(list(self._missed))

    def _known_at(self, name: str) -> set[str]:
        """The workers whose sessions the routing table has at a name."""
        return {each.peer.epoch for each in self.copies.remotes_at(name)}

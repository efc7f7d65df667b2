"""Who holds or hears an address on other workers: asked where the address is at home.

The home of an address is the worker that has the session which holds it; a runtime is at home with
each of its sessions. What this worker's sessions hold is in the directory (directory_entries.py),
and so are the workers that listen to an address (interest.py); what sessions have learned is told
over the links alone (replication.py).

Rules
- Before a message is judged whose recipient nobody here knows, the directory is asked, then the
  home it names. The home answers after all that it said before of the address, so that the routing
  table knows then, or nobody holds the address.
- Before a message is judged whose listeners on other workers are not all known here, those workers
  are asked; afterwards they say every change, so that nothing is asked for the next one.
- What was found out counts for the message that asked and for no other: "nobody" may be wrong for
  the next one. What could not be found out within LIMIT seconds is not asked again so long, and
  such an address is answered 503.
- Before a runtime gets a session, all that the others have of it are asked for, and those of
  runtimes above and below it. One that is known to be there and cannot be heard of is in the way;
  while the directory is away, what is in the routing table counts.
- Questions of one turn of the event loop go together.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from functools import partial
from itertools import chain
from time import monotonic
from typing import NamedTuple

from msgnode.bus.table import RoutingTable
from msgnode.core.addresses import ancestors, runtime_line, runtime_twin
from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault

from .doubts import MOST_REMEMBERED, Doubts, Question
from .interest import Interest
from .peer import Peer
from .protocol import HolderRequest, HolderResponse
from .transport import PeerTransport

LIMIT = 2.0


class _Home(NamedTuple):
    """Where something is: the worker's epoch, and what it holds that makes it so."""

    epoch: str
    name: str


class Homes:
    """One instance per worker. Implements the bus's Holders.

    `knows_all` says whether all that is told over the links is known; `is_retired` whether a worker
    has ended and what it had was taken.
    """

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: PeerTransport,
        interest: Interest,
        knows_all: Callable[[], bool],
        is_retired: Callable[[str], bool],
    ) -> None:
        self.knows_all = knows_all
        self._is_retired = is_retired
        self.asked = 0  # addresses
        self.not_known = 0  # of these
        self._directory = directory
        self._table = table
        self._transport = transport
        self._interest = interest
        interest.look_for = self.look_for
        self._looking_for: set[str] = set()
        self._epoch = transport.me.epoch
        self._questions: list[Question] = []
        self._known: OrderedDict[Hashable, frozenset[str]] = OrderedDict()
        self._doubts = Doubts()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[list[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Ask nothing more."""
        for task in self._tasks:
            task.cancel()

    # --- what is asked ----------------------------------------------------------------------------

    def find(self, key: Hashable, addresses: Collection[str], heard: Collection[str] = ()) -> None:
        """Find out who holds addresses that nobody here knows, for the message of this key; and who
        listens to those `heard`.

        Raises:
            Pending: it is being found out; the message is to come again.
        """
        known = self._known.pop(key, frozenset())
        missing = [each for each in addresses if each not in known and not self._is_unknown(each)]
        unheard = [each for each in heard if each not in known and not self._is_unknown(each)]
        if missing or unheard:
            ask = partial(self._ask, key, missing, "", unheard)
            raise Pending("Who holds or hears an address", ask)
        for each in heard:
            if each not in addresses and not self._interest.hears(each):
                self._interest.miss(each)

    def hears(self, address: str) -> bool:
        """Whether all that listen to an address are in the routing table."""
        return self._interest.hears(address)

    def look_for(self, addresses: Collection[str]) -> None:
        """Find out in the background who listens to these addresses."""
        new = [each for each in addresses if each not in self._looking_for]
        if new:
            self._looking_for.update(new)
            self._ask(None, [], "", new, partial(self._looking_for.difference_update, new))

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """The same, where nothing may be done without it. Raises Unavailable if it is not known.

        Who holds an address owns what lies below it, so the addresses above are asked for, too.
        """
        lines = {each: (each, *ancestors(each)) for each in addresses}
        self.find(key, dict.fromkeys(chain.from_iterable(lines.values())))
        for address, line in lines.items():
            if any(each not in self._table.owners and self._is_unknown(each) for each in line):
                raise Unavailable(f"Whose {address} is cannot be found out just now.")

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """See that the sessions of a runtime, and of those above and below it, are in the table.

        Raises:
            Pending: they are being found out; who asks is to come again.
            Unavailable: one is with a worker that does not answer.
        """
        known = self._known.pop(key, frozenset())
        doubt = self._doubts.of(runtime_url)
        if runtime_url not in known and doubt is None:
            ask = partial(self._ask, key, [runtime_url], runtime_url, [])
            raise Pending("Who is at a runtime URL", ask)
        if doubt is not None and doubt.is_named:
            raise Unavailable(f"A session of {runtime_url} cannot be heard of just now: try again.")

    def forget_unknown(self) -> None:
        """The directory is there again: ask anew what could not be found out."""
        self._doubts.clear()

    def is_known(self, address: str) -> bool:
        """Whether an address that is not in the routing table is nobody's, on any worker."""
        return self.knows_all() and not self._is_unknown(address)

    def _is_unknown(self, address: str) -> bool:
        """Whether it could not be found out, lately, if anybody holds the address."""
        return self._doubts.of(address) is not None

    def _has(self, name: str) -> bool:
        """Whether the routing table knows who holds this, or is at a runtime here or below."""
        table = self._table
        is_held = name in table.owners or name in table.runtimes
        return is_held or next(table.runtimes_below(name), None) is not None

    def heard(self, peer: Peer, message: HolderRequest | HolderResponse) -> None:
        """Another worker asks what is at home here, or answers."""
        if isinstance(message, HolderRequest):
            held = [each for each in message.addresses if self._has(each)]
            for address in message.watched:
                self._interest.asked(peer, address)
            peer.out.put(HolderResponse(message.number, held), sum(map(len, held)))
            return
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.held)

    def _ask(
        self,
        key: Hashable,
        addresses: list[str],
        runtime: str,
        watched: list[str],
        tell: Callable[[], None],
    ) -> None:
        if not self._questions:
            asyncio.get_running_loop().call_soon(self._find_all)
        self._questions.append(Question(key, addresses, runtime, watched, tell))

    def _find_all(self) -> None:
        questions, self._questions = self._questions, []
        self._start(self._answer(questions))

    async def _answer(self, questions: list[Question]) -> None:
        addresses = {address for each in questions for address in each.addresses}
        watched = {address for each in questions for address in each.watched}
        opening = {each.runtime for each in questions if each.runtime}
        self.asked += len(addresses | watched)
        limit = monotonic() + LIMIT
        at_home: dict[str, set[_Home]] = {}
        listening: dict[str, set[str]] = {}
        try:
            async with asyncio.timeout(LIMIT):
                (at_home, unknown), listening = await asyncio.gather(
                    self._look_up(addresses, opening, watched), self._interest.watch(watched)
                )
        except (RedisFault, TimeoutError):
            unknown = addresses | watched
        except Exception as error:
            FAULTS.note("directory", error)
            unknown = addresses | watched
        self._give_up(unknown, is_named=False)
        listening = {
            each: {epoch for epoch in epochs if not self._is_retired(epoch)}
            for each, epochs in listening.items()
            if each not in unknown
        }
        asked = self._ask_homes(set(chain.from_iterable(at_home.values())), listening)
        waiting: dict[frozenset[str], list[Question]] = {}
        for each in questions:  # a home that does not answer holds up nobody but who needs it
            homes = (at_home.get(address, ()) for address in each.addresses)
            epochs = frozenset(home.epoch for home in chain.from_iterable(homes))
            epochs = epochs.union(*(listening.get(address, ()) for address in each.watched))
            waiting.setdefault(epochs, []).append(each)
        for epochs, those in waiting.items():
            answers = {each: asked[each] for each in epochs if each in asked}
            self._start(self._hear_homes(answers, at_home, listening, those, limit - monotonic()))

    async def _look_up(
        self, addresses: set[str], opening: set[str], watched: set[str]
    ) -> tuple[dict[str, set[_Home]], set[str]]:
        """The homes of addresses; and of which none can be found though there may be."""
        peers = self._transport.peers
        ready = [peer.epoch for peer in peers.values() if peer.is_up and peer.is_ready]
        lines = {each: runtime_line(each) for each in addresses}
        sets = {(Kind.RUNTIME, each) for each in chain.from_iterable(lines.values())}
        sets |= {(Kind.BELOW, each) for url in opening for each in (url, runtime_twin(url))}
        found = await self._directory.find(addresses, ready, sets)
        at_home: dict[str, set[_Home]] = {}
        unknown: set[str] = set() if found.is_whole else set(watched)
        for address, line in lines.items():
            homes = {_Home(epoch, name) for name in line for epoch in found.runtimes.get(name, ())}
            if address in found.workers:
                homes.add(_Home(found.workers[address], address))
            homes = {each for each in homes if not self._is_retired(each.epoch)}
            if homes:
                at_home[address] = homes
            elif not found.is_whole:
                unknown.add(address)
        return at_home, unknown

    def _ask_homes(
        self, homes: set[_Home], listening: Mapping[str, set[str]]
    ) -> dict[str, asyncio.Future[list[str]]]:
        """Ask those of them that are heard of; what is at home here the table knows."""
        names: dict[str, list[str]] = {}
        for home in homes:
            names.setdefault(home.epoch, []).append(home.name)
        watched: dict[str, list[str]] = {}
        for address, epochs in listening.items():
            for epoch in epochs:
                watched.setdefault(epoch, []).append(address)
        peers = self._transport.peers
        return {
            epoch: self._ask_home(peers[epoch], names.get(epoch, []), watched.get(epoch, []))
            for epoch in names.keys() | watched.keys()
            if epoch in peers and peers[epoch].is_up
        }

    def _ask_home(
        self, peer: Peer, names: list[str], watched: list[str]
    ) -> asyncio.Future[list[str]]:
        number = next(self._numbers)
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        size = sum(map(len, (*names, *watched)))
        peer.out.put(HolderRequest(number, names, watched), size)
        return answer

    async def _hear_homes(
        self,
        answers: Mapping[str, asyncio.Future[list[str]]],
        at_home: Mapping[str, set[_Home]],
        listening: Mapping[str, set[str]],
        questions: list[Question],
        seconds: float,
    ) -> None:
        """Tell who asked once these homes have answered, or have not in so many seconds."""
        if answers:
            await asyncio.wait(answers.values(), timeout=seconds)
        unknown = {
            address
            for address in (each for question in questions for each in question.addresses)
            for home in at_home.get(address, ())
            if home.epoch != self._epoch and not self._is_clear(home, answers.get(home.epoch))
        }
        for address in {each for question in questions for each in question.watched}:
            if address in listening:
                if all(self._has_said(epoch, answers) for epoch in listening[address]):
                    self._interest.know(address)
                else:
                    unknown.add(address)
        self._give_up(unknown, is_named=True)
        for each in answers.values():
            each.cancel()
        for question in questions:
            if question.key is not None:
                self._known[question.key] = frozenset((*question.addresses, *question.watched))
            with FAULTS.kept_to("sender"):
                question.tell()
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def _is_clear(self, home: _Home, answer: asyncio.Future[list[str]] | None) -> bool:
        """Whether it is known who is there: the table knows, or the home said that nobody is."""
        if self._has(home.name):
            return True
        is_answered = answer is not None and answer.done() and not answer.cancelled()
        return is_answered and answer is not None and home.name not in answer.result()

    def _has_said(self, epoch: str, answers: Mapping[str, asyncio.Future[list[str]]]) -> bool:
        """Whether a worker has said who listens there, and its sessions are all known here."""
        answer, peer = answers.get(epoch), self._transport.peers.get(epoch)
        is_answered = answer is not None and answer.done() and not answer.cancelled()
        return is_answered and peer is not None and peer.is_known

    def _give_up(self, addresses: set[str], is_named: bool) -> None:
        self.not_known += len(addresses)
        self._doubts.note(addresses, is_named, LIMIT)

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

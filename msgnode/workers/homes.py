"""Who holds an address that is not in the routing table: asked where the address is at home.

The home of an address is the worker that has the session which holds it. What this worker's
sessions hold is in the directory (directory_entries.py); what they subscribe or have learned is
told over the links alone (replication.py).

Rules
- Before a message is judged whose recipient nobody here knows, the directory is asked, then the
  home it names. The home answers after all that it said before of the address, so that the routing
  table knows then, or nobody holds the address.
- What was found out counts for the message that asked and for no other: "nobody" may be wrong for
  the next one. What could not be found out within LIMIT seconds is not asked again so long, and
  such an address is answered 503.
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
from typing import Any

from msgnode.bus.table import RoutingTable
from msgnode.core.addresses import ancestors
from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending
from msgnode.redis.directory import Directory
from msgnode.redis.faults import RedisFault

from .peer import Peer
from .protocol import HolderRequest, HolderResponse
from .transport import PeerTransport

LIMIT = 2.0
MOST_REMEMBERED = 10_000


class _Question:
    """A message, known by `key`, waits to hear who holds some addresses."""

    __slots__ = ("addresses", "key", "tell")

    def __init__(self, key: Hashable, addresses: list[str], tell: Callable[[], None]) -> None:
        self.key = key
        self.addresses = addresses
        self.tell = tell


class Homes:
    """One instance per worker. Implements the bus's Holders.

    `knows_all` says whether all that is told over the links is known.
    """

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: PeerTransport,
        knows_all: Callable[[], bool],
    ) -> None:
        self.knows_all = knows_all
        self.asked = 0  # addresses
        self.not_known = 0  # of these
        self._directory = directory
        self._table = table
        self._transport = transport
        self._epoch = transport.me.epoch
        self._questions: list[_Question] = []
        self._known: OrderedDict[Hashable, frozenset[str]] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()  # address -> until when
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[list[str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Ask nothing more."""
        for task in self._tasks:
            task.cancel()

    # --- what is asked ----------------------------------------------------------------------------

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """Find out who holds addresses that nobody here knows, for the message of this key.

        Raises:
            Pending: it is being found out; the message is to come again.
        """
        known = self._known.pop(key, frozenset())
        missing = [each for each in addresses if each not in known and not self._is_unknown(each)]
        if missing:
            raise Pending("The holder of an address", partial(self._ask, key, missing))

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """The same, where nothing may be done without it. Raises Unavailable if it is not known.

        Who holds an address owns what lies below it, so the addresses above are asked for, too.
        """
        lines = {each: (each, *ancestors(each)) for each in addresses}
        self.find(key, dict.fromkeys(chain.from_iterable(lines.values())))
        for address, line in lines.items():
            if any(each not in self._table.owners and self._is_unknown(each) for each in line):
                raise Unavailable(f"Whose {address} is cannot be found out just now.")

    def forget_unknown(self) -> None:
        """The directory is there again: ask anew what could not be found out."""
        self._unknown.clear()

    def is_known(self, address: str) -> bool:
        """Whether an address that is not in the routing table is nobody's, on any worker."""
        return self.knows_all() and not self._is_unknown(address)

    def _is_unknown(self, address: str) -> bool:
        """Whether it could not be found out, lately, if anybody holds the address."""
        until = self._unknown.get(address)
        return until is not None and monotonic() < until

    def heard(self, peer: Peer, message: HolderRequest | HolderResponse) -> None:
        """Another worker asks what is at home here, or answers."""
        if isinstance(message, HolderRequest):
            held = [each for each in message.addresses if each in self._table.owners]
            peer.out.put(HolderResponse(message.number, held), sum(map(len, held)))
            return
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.held)

    def _ask(self, key: Hashable, addresses: list[str], tell: Callable[[], None]) -> None:
        if not self._questions:
            asyncio.get_running_loop().call_soon(self._find_all)
        self._questions.append(_Question(key, addresses, tell))

    def _find_all(self) -> None:
        questions, self._questions = self._questions, []
        self._start(self._answer(questions))

    async def _answer(self, questions: list[_Question]) -> None:
        addresses = {address for each in questions for address in each.addresses}
        self.asked += len(addresses)
        limit = monotonic() + LIMIT
        at_home: dict[str, str] = {}
        try:
            async with asyncio.timeout(LIMIT):
                at_home, unknown = await self._look_up(addresses)
        except (RedisFault, TimeoutError):
            unknown = addresses
        except Exception as error:
            FAULTS.note("directory", error)
            unknown = addresses
        self._give_up(unknown)
        asked = {epoch: self._ask_home(epoch, at_home) for epoch in set(at_home.values())}
        waiting: dict[frozenset[str], list[_Question]] = {}
        for each in questions:  # a home that does not answer holds up nobody but who needs it
            homes = frozenset(at_home[address] for address in each.addresses if address in at_home)
            waiting.setdefault(homes, []).append(each)
        for homes, those in waiting.items():
            answers = {each: asked[each] for each in homes}
            self._start(self._hear_homes(answers, at_home, those, limit - monotonic()))

    async def _look_up(self, addresses: set[str]) -> tuple[dict[str, str], set[str]]:
        """The homes of addresses, by epoch; and of which none can be found though there may be."""
        peers = self._transport.peers
        ready = [peer.epoch for peer in peers.values() if peer.is_up and peer.is_ready]
        found = await self._directory.find(addresses, ready)
        unknown = set() if found.is_whole else addresses - found.workers.keys()
        at_home: dict[str, str] = {}
        for address, epoch in found.workers.items():
            peer = peers.get(epoch)
            if peer is not None and peer.is_up:
                at_home[address] = epoch
            elif epoch != self._epoch:  # what is at home here the table knows
                unknown.add(address)
        return at_home, unknown

    def _ask_home(self, epoch: str, at_home: Mapping[str, str]) -> asyncio.Future[list[str]]:
        number = next(self._numbers)
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        theirs = [address for address, home in at_home.items() if home == epoch]
        request = HolderRequest(number, theirs)
        self._transport.peers[epoch].out.put(request, sum(map(len, theirs)))
        return answer

    async def _hear_homes(
        self,
        answers: Mapping[str, asyncio.Future[list[str]]],
        at_home: Mapping[str, str],
        questions: list[_Question],
        seconds: float,
    ) -> None:
        """Tell who asked once these homes have answered, or have not in so many seconds."""
        if answers:
            await asyncio.wait(answers.values(), timeout=seconds)
        held = self._table.owners
        unknown: set[str] = set()
        for address in (each for question in questions for each in question.addresses):
            if address not in at_home or address in held:
                continue
            answer = answers[at_home[address]]
            if not answer.done() or answer.cancelled() or address in answer.result():
                unknown.add(address)
        self._give_up(unknown)
        for each in answers.values():
            each.cancel()
        for question in questions:
            self._known[question.key] = frozenset(question.addresses)
            with FAULTS.kept_to("sender"):
                question.tell()
        _bound(self._known)

    def _give_up(self, addresses: set[str]) -> None:
        self.not_known += len(addresses)
        until = monotonic() + LIMIT
        for address in addresses:
            self._unknown[address] = until
            self._unknown.move_to_end(address)
        _bound(self._unknown)

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _bound(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > MOST_REMEMBERED:
        remembered.popitem(last=False)

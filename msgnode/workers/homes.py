"""Finds out who holds or hears an address on other workers, by asking the workers it is at.

The homes of a name are the workers that have sessions at it. The directory lists them
(interest.py), and each tells which sessions these are (announcements.py).

Rules
- Before a message is carried, everybody at the names of its recipients (the address and those above
  it) must be in the routing table: the directory is queried, then the homes that are not known yet.
  From then on they announce every change, so the next message needs no query.
- A home that sessions have left names where they went, and those workers are queried too.
- A query that failed is not repeated for LIMIT seconds; if nobody is known at such an address, a
  message to it is answered 503.
- Before a runtime gets a session, all sessions that other workers have of it, and of runtimes above
  and below it, are queried. One that exists but cannot be reached blocks the new session; while the
  directory is away, the routing table counts as complete. Nobody starts to watch a runtime's name
  for that if the runtime has no session.
- Queries of one turn of the event loop are combined, about AT_ONCE names; the rest follow in later
  turns. What one message asks about many names is asked in parts, and others are asked for between.
- Whoever asks is charged for each name as for NAME_COST messages.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import monotonic
from typing import NamedTuple

from msgnode.core.addresses import names_of, runtime_twin
from msgnode.core.errors import Unavailable
from msgnode.core.faults import FAULTS
from msgnode.core.pending import Pending
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault

from .interest import Interest
from .linked_worker import LinkedWorker
from .own_names import AT_ONCE, OwnNames
from .protocol import NamesRequest, NamesResponse
from .transport import LinkTransport

MOST_REMEMBERED = 10_000
LIMIT = 2.0
NAME_COST = 4
"""As many messages can be carried in the time that it takes to query the directory for a name."""
MOST_KNOWN = 100_000
"""Most names that are remembered for messages which were not carried again yet."""
REMEMBERED = 10.0
"""Seconds for which they are: a message whose names are all in the table by then asks no more."""

Asked = dict[str, "asyncio.Future[dict[str, list[str]]]"]
"""The answers by epoch: for each name the workers to which sessions have moved from there."""


class Homes:
    """One instance per worker; the bus's Holders.

    `knows_all` says whether all workers that accept sessions can be reached; `is_retired` whether a
    worker has ended and its sessions were taken over.
    """

    def __init__(
        self,
        directory: Directory,
        transport: LinkTransport,
        names: OwnNames,
        interest: Interest,
        knows_all: Callable[[], bool],
        is_retired: Callable[[str], bool],
    ) -> None:
        self.knows_all = knows_all
        self._is_retired = is_retired
        self.asked = 0  # names
        self.not_known = 0  # of these
        self._directory = directory
        self._transport = transport
        self._names = names
        self._interest = interest
        self._looking_for: set[str] = set()
        self._questions: deque[Question] = deque()
        self._parts: deque[Question] = deque()  # of those about many names
        self._known: OrderedDict[Hashable, Found] = OrderedDict()  # the oldest first
        self._known_names = 0  # in all of `_known`
        self._doubts = Doubts()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, list[str]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        transport.handlers[NamesRequest] = self._asked_by
        transport.handlers[NamesResponse] = self._answered_by

    async def stop(self) -> None:
        """Stop asking."""
        for task in self._tasks:
            task.cancel()

    # --- what is asked ----------------------------------------------------------------------------

    def find(self, key: Hashable, addresses: Collection[str]) -> None:
        """Ensure that everybody at the names of addresses is known, for the message of this key.

        Raises:
            Pending: the query is running; carry the message again afterwards.
        """
        known = self._known_for(key)
        names = dict.fromkeys(chain.from_iterable(map(names_of, addresses)))
        missing = [each for each in names if not self._interest.knows(each) and each not in known]
        unknown = [each for each in missing if self._is_unknown(each)]
        if len(unknown) < len(missing):
            asked = [each for each in missing if each not in unknown]
            ask = partial(self._ask, key, asked, "")
            raise Pending("Who holds or hears an address", ask, NAME_COST * len(asked))
        for each in addresses:
            if self._interest.may_miss(each):
                self._interest.miss(each)

    def hears(self, address: str) -> bool:
        """Whether the routing table has all holders and subscribers of an address."""
        return self._interest.hears(address)

    def look_for(self, names: Collection[str]) -> None:
        """Query in the background who is at these names."""
        new = [each for each in names if each not in self._looking_for]
        if new:
            self._looking_for.update(new)
            self._ask(None, new, "", partial(self._looking_for.difference_update, new))

    def require(self, key: Hashable, addresses: Collection[str]) -> None:
        """As `find`, where the result is required. Raises Unavailable if it cannot be found out."""
        self.find(key, addresses)
        for address in addresses:
            names = names_of(address)
            if any(not self._interest.knows(each) and self._is_unknown(each) for each in names):
                raise Unavailable(f"Whose {address} is cannot be found out just now.")

    def find_runtime(self, key: Hashable, runtime_url: str) -> None:
        """Ensure the table has the sessions of a runtime and of runtimes above and below its URL.

        Raises:
            Pending: the query is running; ask again afterwards.
            Unavailable: a worker that has such a session does not answer.
        """
        known = self._known_for(key)
        doubt = self._doubts.of(runtime_url)
        if runtime_url not in known and doubt is None:
            ask = partial(self._ask, key, [], runtime_url)
            raise Pending("Who is at a runtime URL", ask)
        if doubt is not None and doubt.is_named:
            raise Unavailable(
                f"A session of {runtime_url} cannot be found at the moment: try again."
            )

    def forget_unknown(self) -> None:
        """Query again what could not be found out, because the directory is back."""
        self._doubts.clear()

    def is_known(self, address: str) -> bool:
        """Whether an address missing from the routing table is certainly held by nobody."""
        if not self.knows_all() or any(map(self._is_unknown, names_of(address))):
            return False
        return self._interest.hears(address)  # else it was evicted since it was asked for

    def is_runtime_known(self, runtime_url: str) -> bool:
        """Whether a session of a runtime that is missing from the table has certainly ended."""
        return self.knows_all() and not self._is_unknown(runtime_url)

    def miss_response(self, address: str) -> None:
        """Note that a response did not reach an address, of which is not known whose it is."""
        self._interest.miss_response(address)

    def _is_unknown(self, name: str) -> bool:
        """Whether a recent query of who is at a name failed."""
        return self._doubts.of(name) is not None

    def _answered_by(self, other: LinkedWorker, message: NamesResponse) -> None:
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_result(message.elsewhere)

    def _asked_by(self, other: LinkedWorker, message: NamesRequest) -> None:
        """Answer another worker's query of who is here at names."""
        self._tell(other, message.number, iter(message.names), {})

    def _tell(
        self,
        other: LinkedWorker,
        number: int,
        names: Iterator[str],
        elsewhere: dict[str, list[str]],
    ) -> None:
        """Tell another worker who is here at names, in several turns if that is much.

        The response comes last, behind everything said of the names (protocol.py).
        """
        told = 0
        for name in names:
            with FAULTS.kept_to("worker link"):
                told += 1 + self._names.number_at(name)
                if gone := self._names.asked(other, name):
                    elsewhere[name] = gone
            if told > AT_ONCE:
                loop = asyncio.get_running_loop()
                loop.call_soon(self._tell, other, number, names, elsewhere)
                return
        size = 40 * sum(map(len, elsewhere.values())) + sum(map(len, elsewhere))
        other.out.put(NamesResponse(number, elsewhere), size)

    def _ask(self, key: Hashable, names: list[str], runtime: str, tell: Callable[[], None]) -> None:
        if not self._questions and not self._parts:
            asyncio.get_running_loop().call_soon(self._find_some)
        if len(names) <= AT_ONCE:
            self._questions.append(Question(key, names, runtime, tell))
            return
        left = -(-len(names) // AT_ONCE)

        def tell_part() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._remember(key, names)
                tell()

        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            self._parts.append(Question(None, part, runtime, tell_part))

    def _find_some(self) -> None:
        """Query for as many callers as one turn of the loop has time for."""
        questions = [self._parts.popleft()] if self._parts else []
        number = 0
        while self._questions and number < AT_ONCE:
            questions.append(self._questions.popleft())
            number += 1 + len(questions[-1].names)
        self._start(self._answer(questions))
        if self._questions or self._parts:
            asyncio.get_running_loop().call_soon(self._find_some)

    def _remember(self, key: Hashable, names: Collection[str]) -> None:
        """Keep for a message what was asked for it, until it is carried again."""
        if key is None:
            return
        self._known_for(key)
        now = monotonic()
        self._known[key] = Found(now + REMEMBERED, frozenset(names))
        self._known_names += len(names)
        while (
            len(self._known) > MOST_REMEMBERED
            or self._known_names > MOST_KNOWN
            or next(iter(self._known.values())).until < now
        ):
            self._known_names -= len(self._known.popitem(last=False)[1].names)

    def _known_for(self, key: Hashable) -> frozenset[str]:
        """Forget and return what was asked for a message."""
        found = self._known.pop(key, None)
        if found is None:
            return frozenset()
        self._known_names -= len(found.names)
        return found.names

    async def _answer(self, questions: list[Question]) -> None:
        limit = monotonic() + LIMIT
        opening = {each.runtime for each in questions if each.runtime}
        watched = {name for each in questions for name in each.names}
        self.asked += len(watched | opening)
        homes: dict[str, set[str]] = {}
        about: dict[str, list[str]] = {}  # runtime URL -> runtimes there, above and below
        unknown: set[str] = set()
        try:
            async with asyncio.timeout(LIMIT):
                about = await self._runtimes_at(opening)
                homes = await self._interest.watch(watched.union(*about.values()))
                is_whole = not watched or await self._is_whole()  # last: it may be emptied any time
            if not is_whole:
                unknown = {each for each in watched if not homes[each]}
        except (RedisFault, TimeoutError):
            unknown = watched | opening
        except Exception as error:
            FAULTS.note("directory", error)
            unknown = watched | opening
        named = {url for url in unknown & opening if about.get(url)}  # it can be read, but is full
        self._give_up(unknown - named, is_named=False)
        self._give_up(named, is_named=True)
        homes = {
            name: {epoch for epoch in epochs if not self._is_retired(epoch)}
            for name, epochs in homes.items()
            if name not in unknown
        }
        asked = self._ask_homes(homes)
        waiting: dict[frozenset[str], list[Question]] = {}
        for each in questions:  # a home that does not answer delays only those who need it
            each.names = [*each.names, *about.get(each.runtime, ())]
            epochs = frozenset(chain.from_iterable(homes.get(name, ()) for name in each.names))
            waiting.setdefault(epochs, []).append(each)
        for epochs, those in waiting.items():
            answers = {each: asked[each] for each in epochs if each in asked}
            self._start(self._hear_homes(answers, homes, those, limit))

    async def _runtimes_at(self, urls: Collection[str]) -> dict[str, list[str]]:
        """The runtimes of other workers at, above and below these URLs. Raises RedisFault."""
        if not urls:
            return {}
        lines = {url: (url, runtime_twin(url)) for url in urls}
        names = {name for url in urls for name in names_of(url)}
        there, below = await asyncio.gather(
            self._directory.members(Kind.NAME, names),
            self._directory.members(Kind.BELOW, {*chain.from_iterable(lines.values())}),
        )
        held = {name for name, those in there.items() if self._interest.holders(name, those)}
        return {
            url: [
                *(name for name in names_of(url) if name in held),
                *dict.fromkeys(self._of_others(chain.from_iterable(
                    below.get(each, ()) for each in both))),
            ]
            for url, both in lines.items()
        }  # fmt: skip

    def _of_others(self, members: Iterable[str]) -> Iterable[str]:
        """The runtimes of other workers below an address, according to the directory."""
        for member in members:
            epoch, _, url = member.partition(" ")
            if epoch != self._transport.me.epoch and not self._is_retired(epoch):
                yield url

    async def _is_whole(self) -> bool:
        """Whether all workers that accept sessions have entered their names. Raises RedisFault."""
        others = [each for each in self._transport.others.values() if each.is_up and each.is_ready]
        are_filled = await self._directory.are_filled([each.epoch for each in others])
        return are_filled and not any(each.owes_entries for each in others)

    def _ask_homes(self, homes: Mapping[str, Collection[str]]) -> Asked:
        """Query those homes that are up; the table has those of this worker."""
        names: dict[str, list[str]] = {}
        for name, epochs in homes.items():
            for epoch in epochs:
                names.setdefault(epoch, []).append(name)
        others = self._transport.others
        return {
            epoch: self._ask_home(others[epoch], those)
            for epoch, those in names.items()
            if epoch in others and others[epoch].is_up
        }

    def _ask_home(
        self, other: LinkedWorker, names: list[str]
    ) -> asyncio.Future[dict[str, list[str]]]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, list[str]]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        answer.add_done_callback(lambda _: self._answers.pop(number, None))
        other.out.put(NamesRequest(number, names), sum(map(len, names)))
        return answer

    async def _hear_homes(
        self,
        answers: Asked,
        homes: Mapping[str, set[str]],
        questions: list[Question],
        limit: float,
    ) -> None:
        """Call the callers back once these homes have answered, or at the time limit."""
        if answers:
            await asyncio.wait(answers.values(), timeout=limit - monotonic())
        names = {name for question in questions for name in question.names}
        followed = self._gone_from(answers, homes, names)
        further = self._ask_homes(followed)
        if further:
            await asyncio.wait(further.values(), timeout=max(0.0, limit - monotonic()))
        unknown: set[str] = set()
        for name in names & homes.keys():
            has_said = all(self._has_said(epoch, answers) for epoch in homes[name])
            if has_said and all(self._has_said(each, further) for each in followed.get(name, ())):
                self._interest.know(name)
            else:
                unknown.add(name)
        for question in questions:
            if question.runtime and not unknown.isdisjoint(question.names):
                unknown.add(question.runtime)
        self._give_up(unknown, is_named=True)
        for each in (*answers.values(), *further.values()):
            each.cancel()
        for question in questions:
            self._remember(question.key, {*question.names, question.runtime})
            with FAULTS.kept_to("sender"):
                question.tell()

    def _gone_from(
        self, answers: Asked, homes: Mapping[str, set[str]], names: Collection[str]
    ) -> dict[str, set[str]]:
        """The workers to which sessions have moved from the queried ones, by name."""
        gone: dict[str, set[str]] = {}
        for epoch, answer in answers.items():
            if self._has_said(epoch, answers):
                for name, epochs in answer.result().items():
                    new = set(epochs) - homes.get(name, set()) - {self._transport.me.epoch}
                    new = {each for each in new if not self._is_retired(each)}
                    if new and name in names:
                        gone.setdefault(name, set()).update(new)
        return gone

    def _has_said(self, epoch: str, answers: Asked) -> bool:
        """Whether a worker has answered who is there."""
        answer = answers.get(epoch)
        return answer is not None and answer.done() and not answer.cancelled()

    def _give_up(self, names: set[str], is_named: bool) -> None:
        self.not_known += len(names)
        self._doubts.note(names, is_named, LIMIT)

    def _start(self, job: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(slots=True)
class Question:
    """A caller, identified by `key`, that waits to learn who is at some names.

    `runtime` is a runtime URL whose sessions must be known, and those of runtimes above and below
    it; "" for none.
    """

    key: Hashable
    names: list[str]
    runtime: str
    tell: Callable[[], None]


class Found(NamedTuple):
    """What was asked for a message.

    Attributes:
        until: when it is forgotten, on the monotonic clock.
        names: the names that were asked for.
    """

    until: float
    names: frozenset[str]


class Doubt(NamedTuple):
    """A failed query of who holds or hears an address.

    Attributes:
        until: when it expires, on the monotonic clock.
        is_named: whether the directory names a worker there.
    """

    until: float
    is_named: bool


class Doubts:
    """The addresses whose queries failed, the most recent ones."""

    def __init__(self) -> None:
        self._doubts: OrderedDict[str, Doubt] = OrderedDict()

    def of(self, address: str) -> Doubt | None:
        """The doubt about an address, if there is a current one."""
        doubt = self._doubts.get(address)
        return doubt if doubt is not None and monotonic() < doubt.until else None

    def note(self, addresses: Collection[str], is_named: bool, seconds: float) -> None:
        """Note failed queries, which count for so many seconds."""
        doubt = Doubt(monotonic() + seconds, is_named)
        for address in addresses:
            self._doubts[address] = doubt
            self._doubts.move_to_end(address)
        while len(self._doubts) > MOST_REMEMBERED:
            self._doubts.popitem(last=False)

    def clear(self) -> None:
        """Forget all, so that everything is queried again."""
        self._doubts.clear()

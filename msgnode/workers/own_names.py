"""The names of this worker's sessions: entered in the directory, and told to their watchers.

A name is an address that sessions hold, have subscribed or send to, or a runtime's URL. In the
directory a worker is entered at each name that its own sessions hold (`=` and its epoch), have only
spoken as (`~`) or only listen to (its epoch), and as a watcher (`?`) at each that its sessions send
to (interest.py). A worker enters itself first and then reads who else is there; so if two do that
at the same time, at least one finds the other.

Rules
- The watchers of a name, and workers that hold it as well, are told who is there and every change.
- An answer that confirms that a session has something waits until this worker is entered and the
  watchers know of it. While the directory does not accept the entry, all workers are told instead,
  and that an entry is owed: then no worker may treat a name that is not found as free.
- What a session has only spoken as ends with its worker. What it holds or hears counts until the
  worker that takes the session over is entered instead.
- Names are entered and removed AT_ONCE in a turn of the event loop, because one session may hold
  100,000. An entry that outlives its session for some turns costs those who find it a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import TypeVar

from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Barrier, after_barrier
from msgnode.core.addresses import runtime_line
from msgnode.core.faults import FAULTS
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault

from .announcements import Announcements, Watchers
from .linked_worker import LinkedWorker
from .protocol import EntriesOwed
from .remote_sessions import RemoteSessions
from .transport import LinkTransport

T = TypeVar("T")

HOLDS, SPEAKS, LISTENS, WATCHES = "=", "~", "", "?"
AT_ONCE = 100
"""Most names that are entered or removed in one turn of the event loop."""
_MOST_UNKNOWN = 10_000
_FORGOTTEN_AFTER = 60.0  # seconds that an unknown epoch is taken for that of a worker that comes


class OwnNames:
    """One instance per worker.

    `is_retired` says whether a worker has ended and its sessions were taken over, `is_dead` whether
    it has ended and they are being taken over.

    `tells_all` is set while the directory may be a new one, in which not all watchers are entered
    yet: all workers are told then.
    """

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: LinkTransport,
        watchers: Watchers,
        announcements: Announcements,
        remotes: RemoteSessions,
        is_retired: Callable[[str], bool],
        is_dead: Callable[[str], bool],
    ) -> None:
        self.tells_all = False
        self._directory = directory
        self._table = table
        self._transport = transport
        self._watched_by = watchers.names
        self._watchers = watchers
        self._announcements = announcements
        self._remotes = remotes
        self._is_retired = is_retired
        self._is_dead = is_dead
        self._epoch = transport.me.epoch
        self._unknown: dict[str, float] = {}  # epochs of watchers nobody has heard of, since when
        self._at: Mapping[str, set[str]] = {HOLDS: set(), SPEAKS: set(), LISTENS: set()}
        self._new: list[tuple[str, str]] = []  # of these names, those of this turn of the loop
        self._replaced: list[tuple[str, str]] = []  # entries of the dead, until ours are there
        self._leaving: dict[str, None] = {}  # names that a session has left, to be looked at
        self._entering: set[asyncio.Task[None]] = set()
        self._is_started = False

    async def stop(self) -> None:
        """Stop entering names."""
        for task in self._entering:
            task.cancel()

    # --- where our sessions are -------------------------------------------------------------------

    def begin(self, kind: str, names: Iterable[str]) -> None:
        """Note sessions of this worker, which `enter_again` will enter."""
        self._is_started = True
        self._at[kind].update(names)

    def arrived(self, kind: str, names: Iterable[str]) -> None:
        """Note that sessions of this worker hold, have spoken as or listen to these names."""
        if not self._is_started:
            return
        there = self._at[kind]
        for name in names:
            if name not in there:
                there.add(name)
                self._enter_soon()
                self._new.append((kind, name))

    def left(self, names: Iterable[str]) -> None:
        """Note that a session of this worker has left these names; others may be there."""
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self._remove_some)
        self._leaving.update(dict.fromkeys(names))

    def _remove_some(self) -> None:
        """Remove the entries at some of the names where no session of this worker is any more."""
        names = list(islice(self._leaving, AT_ONCE))
        for name in names:
            del self._leaving[name]
            for kind, there in self._at.items():
                if name in there and not self._is_still(kind, name):
                    there.discard(name)
                    self._directory.release(Kind.NAME, name, kind + self._epoch)
                    for above in _above(name) if kind == HOLDS else ():
                        self._directory.release(Kind.BELOW, above, f"{self._epoch} {name}")
            if not self._is_here(name):
                if name in self._watchers.owed:
                    self._owes(self._watchers.owed - {name})
                for epoch, watched in self._watched_by.items():
                    if self._is_up(epoch):  # another one is told when it is there again
                        watched.discard(name)
        if self._leaving:
            asyncio.get_running_loop().call_soon(self._remove_some)

    def gone(self, held: Collection[str], heard: Collection[str], epoch: str) -> None:
        """Note that a session at these names has moved to a worker that may not know it yet.

        Until it does, queries for the session find this worker as well, and are told where it is.
        """
        for kind, names in ((HOLDS, held), (LISTENS, heard)):
            for name in names:
                self._directory.claim(Kind.NAME, name, kind + epoch)
        gone = {*held, *heard}
        after_barrier(lambda: self._transport.done_by(epoch), lambda: self.left(gone))

    def holds(self, name: str) -> bool:
        """Whether a session of this worker holds exactly this name, or has spoken as it."""
        return name in self._at[HOLDS] or name in self._at[SPEAKS]

    def is_leaving(self, session_id: str) -> bool:
        """Whether a session of this worker is on its way to another one."""
        return session_id in self._watchers.leaving

    def _is_here(self, name: str) -> bool:
        return any(name in there for there in self._at.values())

    def _is_still(self, kind: str, name: str) -> bool:
        """Whether a session of this worker is still at a name, in this role."""
        if kind == LISTENS:
            return self._table.is_heard_here(name)
        if kind == SPEAKS:
            return self._table.is_learned_here(name)
        return self._table.is_held_here(name)

    def taken(self, held: Iterable[str], heard: Iterable[str], epoch: str) -> None:
        """Note that a session at these names was taken over from a dead worker."""
        self._enter_soon()
        for kind, names in ((HOLDS, held), (LISTENS, heard)):
            self._replaced.extend((name, kind + epoch) for name in names)

    def watchers_of(self, name: str) -> list[str]:
        """The workers to be told of changes at a name."""
        if self.tells_all or name in self._watchers.owed:
            return list(self._transport.others)
        return [epoch for epoch, watched in self._watched_by.items() if name in watched]

    @property
    def barriers(self) -> tuple[Barrier, Barrier]:
        """The barriers of answers: `barrier`, and `entered` for names that nobody can know yet."""
        return self.barrier, self.entered

    def entered(self) -> asyncio.Future[None] | None:
        """A future for when every worker can find where this worker's sessions are."""
        return self._after_entering(self._all_told_what_is_owed)

    def findable(self, name: str) -> asyncio.Future[None] | None:
        """A future for when every worker can find who is at a name, and its watchers know."""
        return self._after_entering(
            lambda: self._everybody_told() if self.watchers_of(name) else None
        )

    def barrier(self) -> asyncio.Future[None] | None:
        """A future for when everybody who sends to this worker's sessions reaches them."""
        return self._after_entering(self._everybody_told)

    def _after_entering(self, further: Barrier) -> asyncio.Future[None] | None:
        self._enter_new()
        if not self._entering:
            return further()
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def entered(_: object) -> None:
            after_barrier(further, lambda: None if found.done() else found.set_result(None))

        entering = asyncio.gather(*self._entering, return_exceptions=True)
        entering.add_done_callback(entered)
        return found

    def _all_told_what_is_owed(self) -> asyncio.Future[None] | None:
        return self._transport.barrier() if self._watchers.owed or self.tells_all else None

    def _everybody_told(self) -> asyncio.Future[None] | None:
        is_for_all = self._watchers.owed or self.tells_all
        return self._transport.barrier() if is_for_all else self._transport.heard()

    def _enter_soon(self) -> None:
        if not self._new and not self._replaced:
            asyncio.get_running_loop().call_soon(self._enter_new)

    def _enter_new(self) -> None:
        new, self._new = self._new, []
        replaced, self._replaced = self._replaced, []
        if new or replaced:
            task = asyncio.create_task(self._enter_some(new, replaced))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter_some(
        self, new: Collection[tuple[str, str]], replaced: Iterable[tuple[str, str]]
    ) -> None:
        """Enter this worker at new names, and then remove the entries that they replace."""
        with FAULTS.kept_to("directory"):
            tells_all = self.tells_all
            try:
                for some in in_parts(new):
                    await self._enter(some)
            except RedisFault:
                owed = {name for _, name in new if self._is_here(name)}
                new_ones = owed - self._watchers.owed
                self._owes(self._watchers.owed | owed)
                self._take_all_for_watchers(new_ones)
            else:
                if tells_all or self.tells_all:  # who watches may have been entered no more
                    self._take_all_for_watchers({name for _, name in new})
            for part in in_parts(replaced):
                for name, member in part:
                    self._directory.release(Kind.NAME, name, member)
                await asyncio.sleep(0)

    async def _enter(self, new: Collection[tuple[str, str]]) -> None:
        """Enter this worker at these names, and tell their watchers. Raises RedisFault."""
        for kind, there in self._at.items():
            names = [name for each, name in new if each == kind and name in there]
            if not names:
                continue
            claims: list[asyncio.Future[None] | None] = []
            for name in names if kind == HOLDS else ():
                for above in _above(name) if name in self._table.runtimes else ():
                    claims += [self._directory.claim(Kind.BELOW, above, f"{self._epoch} {name}")]
            found = await self._directory.join(names, kind + self._epoch)
            await asyncio.gather(*filter(None, claims), return_exceptions=True)
            self._owes(self._watchers.owed.difference(names))
            for name, members in found.items():
                if name not in there:  # it has ended meanwhile
                    self._directory.release(Kind.NAME, name, kind + self._epoch)
                    continue
                told = {e for e, what in self.others(name, members) if what != LISTENS}
                for epoch in told:
                    self._watched_by.setdefault(epoch, set()).add(name)
                self._announcements.tell_at(name, told)

    def _take_all_for_watchers(self, names: Iterable[str]) -> None:
        """Tell all workers who is at these names; those that do not watch them say so.

        Those that are down are told with the snapshot when they are heard of again.
        """
        told = list(self._transport.others)
        for name in self._watchers.in_order(filter(self._is_here, names)):
            for epoch in told:
                self._watched_by.setdefault(epoch, set()).add(name)
            self._announcements.tell_at(name, told)

    def _owes(self, names: set[str]) -> None:
        before, self._watchers.owed = bool(self._watchers.owed), names
        if bool(names) != before:
            self._transport.tell(EntriesOwed(bool(names)))

    def _is_up(self, epoch: str) -> bool:
        other = self._transport.others.get(epoch)
        return other is not None and other.is_up

    # --- what others say --------------------------------------------------------------------------

    def number_at(self, name: str) -> int:
        """How many sessions, about, another worker is told of that asks about a name."""
        return len(self._table.subscribers(name))

    def asked(self, other: LinkedWorker, name: str) -> list[str]:
        """Note that another worker watches a name; the workers that sessions have moved to."""
        if self._is_here(name):
            self._watched_by.setdefault(other.epoch, set()).add(name)
        self._announcements.tell_at(name, [other.epoch])
        gone = {each.worker.epoch for each in self._remotes.at(name)}
        return list(gone - {other.epoch})

    def met(self, other: LinkedWorker, name: str) -> None:
        """Note that another worker has sessions at a name; if this one has too, it is told."""
        watched = self._watched_by.setdefault(other.epoch, set())
        if self.holds(name) and name not in watched:
            watched.add(name)
            self._announcements.tell_at(name, [other.epoch])

    def unwatched(self, other: LinkedWorker, names: Iterable[str]) -> None:
        """Note that another worker no longer watches these names."""
        self._watched_by.get(other.epoch, set()).difference_update(names)

    def forget(self, epoch: str) -> None:
        """Forget a worker that has ended."""
        for name in self._watched_by.pop(epoch, ()):
            self._directory.release(Kind.NAME, name, WATCHES + epoch)

    # --- kept up ----------------------------------------------------------------------------------

    async def enter_again(self, pause: float) -> None:
        """Enter this worker everywhere once more. Raises RedisFault."""
        for kind, there in self._at.items():
            for some in in_parts(there):
                await self._enter([(kind, name) for name in some])
                await asyncio.sleep(pause)

    def look_after(self) -> None:
        """Retry what has failed, and forget workers not heard of for long."""
        if self._watchers.owed and not self._entering:
            for kind, there in self._at.items():
                self._new.extend((kind, name) for name in self._watchers.owed & there)
            self._enter_new()
        for epoch in tuple(self._watched_by):
            if self._has_ended(epoch):
                self.forget(epoch)

    def others(self, name: str, members: Iterable[str]) -> Iterator[tuple[str, str]]:
        """The other workers at a name, each with its role there."""
        for member in members:
            kind = member[:1] if member[:1] in (HOLDS, SPEAKS, WATCHES) else LISTENS
            epoch = member[len(kind) :]
            if self._has_ended(epoch) or (kind == SPEAKS and self._is_dead(epoch)):
                self._directory.release(Kind.NAME, name, member)
            elif epoch != self._epoch:
                yield epoch, kind

    def _has_ended(self, epoch: str) -> bool:
        """Whether a worker was not heard of for so long that it cannot be a new one."""
        if not self._is_retired(epoch):
            self._unknown.pop(epoch, None)
            return False
        now = monotonic()
        since = self._unknown.setdefault(epoch, now)
        if len(self._unknown) > _MOST_UNKNOWN:  # those that ended first
            del self._unknown[next(iter(self._unknown))]
        return now - since > _FORGOTTEN_AFTER


def _above(runtime_url: str) -> list[str]:
    """The addresses above a runtime's URL, in its own spelling."""
    line = runtime_line(runtime_url)
    return line[1 : len(line) // 2]


def in_parts(items: Iterable[T]) -> list[list[T]]:
    """Names, or what is to be done about them, in batches of AT_ONCE."""
    all_ = list(items)
    return [all_[start : start + AT_ONCE] for start in range(0, len(all_), AT_ONCE)]

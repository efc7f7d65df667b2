"""Who holds an address, in Redis for all workers: address -> session -> worker.

An entry `a:<address>` has the id of the session that holds the address, `s:<session>` the epoch of
the worker that has the session; so a session that moves changes one entry. `r:<runtime URL>` is the
set of the sessions of a runtime, `b:<address>` of those whose runtime URL lies below the address.
`l:<address>` is the set of the workers that listen to an address, or watch who does (interest.py of
the workers).
`f:<epoch>` says that this worker has entered all it holds, and into which server.

Rules
- `claim` is said once, by who has something by a commit: it overwrites. `keep` says again what
  holds: it does not overwrite what somebody else has claimed. `release` removes an entry only while
  it names who releases it. In a set each session stands for itself, so nobody overwrites anybody.
- What could not be said, because Redis was away or full, is kept and said again (`say_again`);
  until then `is_failing`.
- An entry ends `expiry` seconds after it was said last, so that what nobody takes back goes, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from .cluster_client import client_of
from .faults import RedisFault, Unreachable

EXPIRY = 3600
MOST_RELEASED = 100_000  # releases that wait; what is more expires
_AT_ONCE = 500  # keys of one look-up
_SAID_AT_ONCE = 200  # claims before Redis is waited for

_KEEP = b"""local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1"""
_RELEASE = b"""if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])"""


class Kind(Enum):
    """What an entry is about."""

    ADDRESS = "a"
    SESSION = "s"
    RUNTIME = "r"
    BELOW = "b"
    LISTENERS = "l"
    FILLED = "f"


_SETS = frozenset({Kind.RUNTIME, Kind.BELOW, Kind.LISTENERS})


class _Entry(NamedTuple):
    """A key, and of a set the member that is meant; "" for a key that has one value."""

    key: str
    member: str


class Found(NamedTuple):
    """What a look-up gave.

    Attributes:
        workers: by address, the epoch of the worker that has the session that holds it.
        runtimes: by runtime URL, or address above some, the epochs of those that have its sessions.
        is_whole: whether what is not found is held by none of the workers that were named.
    """

    workers: dict[str, str]
    runtimes: dict[str, set[str]]
    is_whole: bool


class Directory:
    """One instance per worker.

    Args:
        url: of the Redis.
        node: what only entries of this node have in their keys.
        expiry: seconds that an entry stays.
    """

    def __init__(self, url: str, node: str, expiry: float = EXPIRY) -> None:
        self.expiry = expiry
        self.on_connected: Callable[[], None] = lambda: None
        self.is_failing = False
        self._client = client_of(url, "msgnode-directory")
        self._client.on_connected = lambda is_new: self.on_connected()
        self._prefix = f"msgnode:{node}"
        self._milliseconds = int(expiry * 1000)
        self._claimed: dict[_Entry, str] = {}  # -> holder, until Redis has it
        self._released: dict[_Entry, str] = {}
        self._last: asyncio.Future[Any] | None = None
        self._failures = 0
        self._is_started = False

    async def start(self) -> None:
        """Connect; nothing, the second time. Raises RedisFault."""
        if not self._is_started:
            await self._client.start()
            self._is_started = True

    async def close(self) -> None:
        """Say nothing more."""
        await self._client.close()

    # --- saying -----------------------------------------------------------------------------------

    def claim(self, kind: Kind, name: str, holder: str) -> None:
        """Enter who holds something from now on."""
        entry = self._entry(kind, name, holder)
        self._released.pop(entry, None)
        self._claimed[entry] = holder
        self._say(entry, holder)

    def release(self, kind: Kind, name: str, holder: str) -> None:
        """Remove the entry, if it still names this holder."""
        self.forget(kind, name, holder)
        self._unsay(self._entry(kind, name, holder), holder)

    def forget(self, kind: Kind, name: str, holder: str) -> None:
        """Do not say again what was claimed: somebody else says it now."""
        self._claimed.pop(self._entry(kind, name, holder), None)

    def keep(self, kind: Kind, name: str, holder: str) -> asyncio.Future[Any]:
        """Say again who holds something. Raises RedisFault, at once or with the reply."""
        entry = self._entry(kind, name, holder)
        if kind in _SETS:
            kept = self._add(entry.key, holder)
        else:
            kept = self._client.execute(b"EVAL", _KEEP, 1, entry.key, holder, self._milliseconds)
        kept.add_done_callback(_failed)  # whoever waits for a later one hears of it
        return kept

    def keep_filled(self, epoch: str) -> None:
        """This worker has entered all that it holds into the server it is connected to."""
        self.claim(Kind.FILLED, epoch, self._client.run_id)

    async def is_filled(self, epoch: str) -> bool:
        """Whether the server has what this worker has entered, all of it. Raises RedisFault."""
        filled = await self._get(Kind.FILLED, (epoch,))
        return filled.get(epoch) == self._client.run_id

    async def say_again(self) -> None:
        """Say what could not be said, some at a time. Raises RedisFault."""
        failures = self._failures
        released, self._released = self._released, {}
        for entry, holder in released.items():
            self._unsay(entry, holder)
        for count, (entry, holder) in enumerate(tuple(self._claimed.items())):
            if self._claimed.get(entry) == holder:
                self._say(entry, holder)
            if count % _SAID_AT_ONCE == 0 and self._last is not None:
                await self._last
        if self._failures == failures:
            self.is_failing = False

    @property
    def last(self) -> asyncio.Future[Any] | None:
        """Done when Redis has all that was claimed until now, or does not take it."""
        return self._last if self._claimed else None

    # --- asking -----------------------------------------------------------------------------------

    async def find(
        self,
        addresses: Collection[str],
        epochs: Collection[str],
        runtimes: Collection[tuple[Kind, str]] = (),
    ) -> Found:
        """Who holds what, as far as the workers of these epochs have entered it.

        Args:
            addresses: that somebody may hold.
            epochs: of all workers.
            runtimes: names of sets of sessions, of the kinds RUNTIME and BELOW.

        Raises:
            RedisFault: it cannot be asked.
        """
        filled, holders, members = await asyncio.gather(
            self._get(Kind.FILLED, epochs),
            self._get(Kind.ADDRESS, addresses),
            self._members(runtimes),
        )
        workers = await self._get(Kind.SESSION, {*holders.values()}.union(*members.values()))
        run_id = self._client.run_id
        epochs_of = {
            name: {workers[id_] for id_ in ids if id_ in workers} for name, ids in members.items()
        }
        return Found(
            {each: workers[id_] for each, id_ in holders.items() if id_ in workers},
            {name: found for name, found in epochs_of.items() if found},
            all(filled.get(epoch) == run_id for epoch in epochs),
        )

    async def join(self, kind: Kind, names: Collection[str], member: str) -> dict[str, set[str]]:
        """Enter a member in sets; by name, who is in them then.

        Who enters waits for the answer, and says it again if there is none.

        Raises:
            RedisFault: it cannot be entered, or not be asked.
        """
        found: dict[str, set[str]] = {}
        asked = list(names)
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            replies: list[asyncio.Future[Any]] = []
            for name in some:
                key = self._key(kind, name)
                self._released.pop(_Entry(key, member), None)
                replies += self._add(key, member), self._client.execute(b"SMEMBERS", key)
            for reply in replies:
                reply.add_done_callback(_failed)  # the first one is told, the others are heard
            members = (await asyncio.gather(*replies))[1::2]
            for name, those in zip(some, members, strict=True):
                found[name] = {each.decode() for each in those}
        return found

    async def _get(self, kind: Kind, names: Collection[str]) -> dict[str, str]:
        asked = list(names)
        found: dict[str, str] = {}
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            holders = await self._client.execute(b"MGET", *(self._key(kind, each) for each in some))
            pairs = zip(some, holders, strict=True)
            found |= {name: holder.decode() for name, holder in pairs if holder is not None}
        return found

    async def _members(self, sets: Collection[tuple[Kind, str]]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        asked = list(sets)
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            replies = [self._client.execute(b"SMEMBERS", self._key(*each)) for each in some]
            for (_, name), members in zip(some, await asyncio.gather(*replies), strict=True):
                found.setdefault(name, set()).update(each.decode() for each in members)
        return found

    # --- what Redis has taken ---------------------------------------------------------------------

    def _say(self, entry: _Entry, holder: str) -> None:
        try:
            if entry.member:
                said = self._add(entry.key, holder)
            else:
                said = self._client.execute(b"SET", entry.key, holder, b"PX", self._milliseconds)
        except Unreachable:
            self._fail()
            return
        self._last = said
        said.add_done_callback(partial(self._have_said, entry, holder))

    def _add(self, key: str, member: str) -> asyncio.Future[Any]:
        added = self._client.execute(b"SADD", key, member)
        self._client.cast(b"PEXPIRE", key, self._milliseconds)
        return added

    def _unsay(self, entry: _Entry, holder: str) -> None:
        try:
            if entry.member:
                removed = self._client.execute(b"SREM", entry.key, holder)
            else:
                removed = self._client.execute(b"EVAL", _RELEASE, 1, entry.key, holder)
        except Unreachable:
            self._owe(entry, holder)
            return
        removed.add_done_callback(partial(self._have_released, entry, holder))

    def _have_said(self, entry: _Entry, holder: str, said: asyncio.Future[Any]) -> None:
        if _failed(said):
            self._fail()
        elif self._claimed.get(entry) == holder:
            del self._claimed[entry]

    def _have_released(self, entry: _Entry, holder: str, removed: asyncio.Future[Any]) -> None:
        if _failed(removed):
            self._owe(entry, holder)

    def _owe(self, entry: _Entry, holder: str) -> None:
        self._fail()
        if entry not in self._claimed and len(self._released) < MOST_RELEASED:
            self._released[entry] = holder

    def _fail(self) -> None:
        self.is_failing = True
        self._failures += 1

    def _entry(self, kind: Kind, name: str, holder: str) -> _Entry:
        return _Entry(self._key(kind, name), holder if kind in _SETS else "")

    def _key(self, kind: Kind, name: str) -> str:
        return f"{self._prefix}:{kind.value}:{name}"


def _failed(reply: asyncio.Future[Any]) -> bool:
    if reply.cancelled():
        return True
    error = reply.exception()
    if error is not None and not isinstance(error, RedisFault):
        raise error
    return error is not None

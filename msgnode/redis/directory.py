"""The directory in Redis: which workers hold, hear and watch each name.

`n:<name>` is the set of the workers that are concerned with a name: an address that a session of
theirs holds, has subscribed or sends to, or a runtime's URL. The meaning of the members is told in
workers/interest.py. `b:<address>` names the runtimes whose URLs are below an address. `f:<epoch>`
says that this worker has entered all it has, and into which server.

Rules
- Each worker is its own member of a set, so nobody overwrites another's entry.
- `join` enters a member and returns who else is there *then*; without an answer the caller repeats
  it. What is only `claim`ed or `release`d, and could not be sent because Redis was away or full, is
  kept and sent again (`say_again`); until then `is_failing`.
- A set expires `expiry` seconds after its last renewal, so that abandoned entries disappear.
- If somebody deletes the data (FLUSHALL) no connection ends. So `join` also reads this worker's own
  mark, last: if that is gone, so may be the entries of others.
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
MOST_OWED = 100_000  # claims and releases that wait; what is more expires, or is entered again
_AT_ONCE = 100  # keys of one look-up
_SAID_AT_ONCE = 200  # of what is said again, before Redis is waited for


class Kind(Enum):
    """The kind of an entry."""

    NAME = "n"
    BELOW = "b"
    FILLED = "f"


class _Entry(NamedTuple):
    """A member of a set."""

    key: str
    member: str


class Directory:
    """One instance per worker.

    Args:
        url: the URL of the Redis.
        node: a prefix for the keys of this node's entries.
        expiry: seconds after which an entry expires.

    Attributes:
        on_connected: called when it can be queried, for the first time or again.
        on_lost: called when somebody else has deleted entries.
        is_failing: whether something could not be sent, and must be sent again.
    """

    def __init__(self, url: str, node: str, expiry: float = EXPIRY) -> None:
        self.expiry = expiry
        self.on_connected: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self.is_failing = False
        self._client = client_of(url, "msgnode-directory")
        self._client.on_connected.append(self._connected)
        self._prefix = f"msgnode:{node}"
        self._milliseconds = int(expiry * 1000)
        self._owed: dict[_Entry, bool] = {}  # -> whether it should be there
        self._under_way: dict[_Entry, int] = {}  # -> the number of the last command
        self._said = 0
        self._failures = 0
        self._is_started = False
        self._mark = ""  # the key of this worker's, once it is there

    async def start(self) -> None:
        """Connect, the first time only. Raises RedisFault."""
        if not self._is_started:
            await self._client.start()
            self._is_started = True

    async def close(self) -> None:
        """Stop sending."""
        await self._client.close()

    def _connected(self, is_new: bool) -> None:
        self._mark = ""
        for each in self.on_connected:
            each()

    # --- saying -----------------------------------------------------------------------------------

    def claim(self, kind: Kind, name: str, member: str) -> asyncio.Future[Any] | None:
        """Enter a member; a future for when that is done, None if it is said again later."""
        return self._say(_Entry(self._key(kind, name), member), True)

    def release(self, kind: Kind, name: str, member: str) -> None:
        """Remove a member."""
        self._say(_Entry(self._key(kind, name), member), False)

    async def join(self, names: Collection[str], member: str) -> dict[str, set[str]]:
        """Enter a member at names; return by name who is there then.

        Raises:
            RedisFault: it cannot be entered, or the names not be read.
        """
        found: dict[str, set[str]] = {}
        asked = list(names)
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            replies: list[asyncio.Future[Any]] = []
            for name in some:
                key = self._key(Kind.NAME, name)
                self._supersede(_Entry(key, member))
                replies += self._add(key, member), self._client.execute(b"SMEMBERS", key)
            mark = self._mark
            if mark:  # after the others
                replies.append(self._client.execute(b"GET", mark))
            for reply in replies:
                reply.add_done_callback(_failed)  # the first one is told, the others are heard
            told = await asyncio.gather(*replies)
            if mark:
                self._look_at_mark(mark, told.pop())
            for name, those in zip(some, told[1::2], strict=True):
                found[name] = {each.decode(errors="replace") for each in those}
        return found

    async def say_again(self) -> None:
        """Send again what could not be sent, in batches. Raises RedisFault."""
        failures = self._failures
        owed, self._owed = self._owed, {}
        for count, (entry, is_there) in enumerate(owed.items()):
            said = self._say(entry, is_there)
            if said is not None and count % _SAID_AT_ONCE == 0:
                await said
        if self._failures == failures:
            self.is_failing = False

    async def keep_filled(self, epoch: str) -> None:
        """Mark that this worker has entered all it has into the server it is connected to.

        Raises:
            RedisFault: the mark cannot be entered.
        """
        key = self._key(Kind.FILLED, epoch)
        run_id = self._client.run_id
        await self._client.execute(b"SET", key, run_id, b"PX", self._milliseconds)
        self._mark = key

    def _look_at_mark(self, key: str, value: bytes | None) -> None:
        """Check whether this worker's entries are still there."""
        if key == self._mark and value != self._client.run_id.encode():
            self._mark = ""  # until all is entered again
            for each in self.on_lost:
                each()

    # --- asking -----------------------------------------------------------------------------------

    async def are_filled(self, epochs: Collection[str]) -> bool:
        """Whether the server has all entries of these workers. Raises RedisFault."""
        if not epochs:
            return True
        keys = [self._key(Kind.FILLED, each) for each in epochs]
        filled = await self._client.execute(b"MGET", *keys)
        for key, value in zip(keys, filled, strict=True):
            self._look_at_mark(key, value)
        run_id = self._client.run_id.encode()
        return all(each == run_id for each in filled)

    async def members(self, kind: Kind, names: Collection[str]) -> dict[str, set[str]]:
        """The members of those names that have any. Raises RedisFault."""
        found: dict[str, set[str]] = {}
        asked = list(names)
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            replies = [self._client.execute(b"SMEMBERS", self._key(kind, each)) for each in some]
            for name, members in zip(some, await asyncio.gather(*replies), strict=True):
                if members:
                    found[name] = {each.decode(errors="replace") for each in members}
        return found

    # --- what Redis has taken ---------------------------------------------------------------------

    def _say(self, entry: _Entry, is_there: bool) -> asyncio.Future[Any] | None:
        self._supersede(entry)
        try:
            if is_there:
                said = self._add(*entry)
            else:
                said = self._client.execute(b"SREM", entry.key, entry.member)
        except Unreachable:
            self._owe(entry, is_there)
            return None
        self._said += 1
        self._under_way[entry] = self._said
        said.add_done_callback(partial(self._have_said, entry, is_there, self._said))
        return said

    def _supersede(self, entry: _Entry) -> None:
        """Ignore the results of earlier commands about an entry."""
        self._owed.pop(entry, None)
        self._under_way.pop(entry, None)

    def _add(self, key: str, member: str) -> asyncio.Future[Any]:
        added = self._client.execute(b"SADD", key, member)
        self._client.cast(b"PEXPIRE", key, self._milliseconds)
        return added

    def _have_said(
        self, entry: _Entry, is_there: bool, number: int, said: asyncio.Future[Any]
    ) -> None:
        has_failed = _failed(said)
        if self._under_way.get(entry) == number:
            del self._under_way[entry]
            if has_failed:
                self._owe(entry, is_there)

    def _owe(self, entry: _Entry, is_there: bool) -> None:
        self.is_failing = True
        self._failures += 1
        if len(self._owed) < MOST_OWED:
            self._owed[entry] = is_there

    def _key(self, kind: Kind, name: str) -> str:
        return f"{self._prefix}:{kind.value}:{name}"


def _failed(reply: asyncio.Future[Any]) -> bool:
    if reply.cancelled():
        return True
    error = reply.exception()
    if error is not None and not isinstance(error, RedisFault):
        raise error
    return error is not None

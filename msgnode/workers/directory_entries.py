"""Keeps this worker's entries in the directory, and enters all of them in a new Redis.

Rules
- own_names.py enters the names of this worker's sessions as they change. All are entered again when
  the connection to the directory is new, when somebody has removed an entry, and after every third
  of an entry's lifetime.
- Once all are entered, a mark says so, with the identity of the Redis server. If the mark of any
  worker is missing, a name that is not found is unknown, not free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from msgnode.core.faults import FAULTS
from msgnode.redis.directory import Directory
from msgnode.redis.faults import RedisFault

from .interest import InterestRenewal
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .ports import LocalSessions
from .transport import LinkTransport

LOOK_INTERVAL = 1.0
"""Seconds between two checks."""


class DirectoryEntries:
    """One instance per worker.

    `on_back` is called when the directory is back after it was away.
    """

    def __init__(
        self,
        directory: Directory,
        transport: LinkTransport,
        local: LocalSessions,
        names: OwnNames,
        interest: InterestRenewal,
        presence: DirectoryPresence,
        on_back: Callable[[], None],
    ) -> None:
        self._presence = presence
        self._on_back = on_back
        self._directory = directory
        self._transport = transport
        self._local = local
        self._names = names
        self._interest = interest
        self._epoch = transport.me.epoch
        self._filling: asyncio.Task[None] | None = None
        directory.on_connected.append(self._begin_anew)
        directory.on_lost.append(self._begin_anew)

    async def start(self) -> None:
        """Enter the names of this worker's sessions. Raises RedisFault."""
        await self._directory.start()
        if self._filling is not None:
            await self._filling

    async def run(self) -> None:
        """Keep the entries, until cancelled."""
        kept = monotonic()
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            with FAULTS.kept_to("directory"), suppress(RedisFault):
                self._names.look_after()
                self._interest.look_after()
                if self._directory.is_failing and not self._is_filling:
                    await self._directory.say_again()
                if self._names.tells_all and not self._is_filling:
                    await self._look_whether_whole()
                if await self._directory.are_filled((self._epoch,)):
                    if self._presence.note_filled():
                        self._on_back()
                    now = monotonic()
                    if now - kept > self._directory.expiry / 3:
                        kept = now
                        self._fill_again(LOOK_INTERVAL / 20)
                elif not self._is_filling:  # the last time it could not be done
                    self._fill_again()

    async def stop(self) -> None:
        """Stop entering names."""
        if self._filling is not None:
            self._filling.cancel()
        await self._names.stop()
        await self._directory.close()

    @property
    def _is_filling(self) -> bool:
        return self._filling is not None and not self._filling.done()

    def _begin_anew(self) -> None:
        """Note that the directory may be incomplete, for this worker and for others."""
        self._names.tells_all = True
        self._fill_again()

    def _fill_again(self, pause: float = 0.0) -> None:
        if self._filling is not None:
            self._filling.cancel()
        self._filling = asyncio.create_task(self._fill(pause))

    async def _fill(self, pause: float) -> None:
        """Enter again the names of all sessions of this worker."""
        for id_, session in tuple(self._local.sessions.items()):
            owned, subscribed, learned = self._local.holdings(id_)
            runtime = (session.runtime_url,) if session.runtime_url else ()
            for kind, names in (
                (HOLDS, (*runtime, *owned)), (SPEAKS, learned), (LISTENS, subscribed),
            ):  # fmt: skip
                self._names.begin(kind, names)
        self._names.begin(HOLDS, ())
        with suppress(RedisFault):  # once it is back everything is entered again
            await self._directory.say_again()
            await self._names.enter_again(pause)
            await self._interest.enter_again(pause)
            await self._directory.keep_filled(self._epoch)
            await self._look_whether_whole()
            self._on_back()

    async def _look_whether_whole(self) -> None:
        """Once all others are entered, tell changes to watchers only. Raises RedisFault."""
        others = [each for each in self._transport.others.values() if each.is_up]
        if await self._directory.are_filled([each.epoch for each in others]):
            self._names.tells_all = False


class DirectoryPresence:
    """Whether this worker's names are in the directory; one per worker, whoever checks notes it.

    Args:
        timeout: seconds for which a check counts.
    """

    def __init__(self, timeout: float) -> None:
        self._seconds = max(timeout, 3 * LOOK_INTERVAL)
        self._filled_at = monotonic()

    @property
    def is_filled(self) -> bool:
        """Whether this worker's names were in the directory at the last check, which is recent."""
        return monotonic() - self._filled_at < self._seconds

    def note_filled(self) -> bool:
        """Note that they are there; return whether that was not so or not known before."""
        now = monotonic()
        was_away = now - self._filled_at > 2 * LOOK_INTERVAL
        self._filled_at = now
        return was_away

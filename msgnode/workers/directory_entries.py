"""Keeps what this worker has in the directory: says it again, and all of it to a new engine.

Rules
- What the sessions of this worker are at is entered by own_names.py as it changes. All is said
  when the connection to the directory is new, when somebody has removed it, and every third of an
  entry's life.
- Once all is entered that is marked, with the server that has it. Where the mark of a worker is
  missing, what is not found is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from msgnode.core.faults import FAULTS
from msgnode.redis.directory import Directory
from msgnode.redis.faults import RedisFault

from .directory_presence import LOOK_INTERVAL, DirectoryPresence
from .interest_renewal import InterestRenewal
from .own_names import HOLDS, LISTENS, SPEAKS, OwnNames
from .ports import LocalSessions
from .transport import PeerTransport


class DirectoryEntries:
    """One instance per worker.

    `on_back` is called when the directory is there again after it was away.
    """

    def __init__(
        self,
        directory: Directory,
        transport: PeerTransport,
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
        """Enter what this worker's sessions hold. Raises RedisFault."""
        await self._directory.start()
        if self._filling is not None:
            await self._filling

    async def run(self) -> None:
        """Keep the entries; until cancelled."""
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
        """Enter nothing more."""
        if self._filling is not None:
            self._filling.cancel()
        await self._names.stop()
        await self._directory.close()

    @property
    def _is_filling(self) -> bool:
        return self._filling is not None and not self._filling.done()

    def _begin_anew(self) -> None:
        """What is in the directory, of this worker and of others, may not be all."""
        self._names.tells_all = True
        self._fill_again()

    def _fill_again(self, pause: float = 0.0) -> None:
        if self._filling is not None:
            self._filling.cancel()
        self._filling = asyncio.create_task(self._fill(pause))

    async def _fill(self, pause: float) -> None:
        """Say again all that our sessions hold."""
        for id_, session in tuple(self._local.sessions.items()):
            owned, subscribed, learned = self._local.holdings(id_)
            runtime = (session.runtime_url,) if session.runtime_url else ()
            for kind, names in (
                (HOLDS, (*runtime, *owned)), (SPEAKS, learned), (LISTENS, subscribed),
            ):  # fmt: skip
                self._names.begin(kind, names)
        self._names.begin(HOLDS, ())
        with suppress(RedisFault):  # once it is there again all is said anew
            await self._directory.say_again()
            await self._names.enter_again(pause)
            await self._interest.enter_again(pause)
            await self._directory.keep_filled(self._epoch)
            await self._look_whether_whole()
            self._on_back()

    async def _look_whether_whole(self) -> None:
        """Tell only who watches once all others have entered themselves. Raises RedisFault."""
        peers = [each for each in self._transport.peers.values() if each.is_up]
        if await self._directory.are_filled([each.epoch for each in peers]):
            self._names.tells_all = False

"""Enters in the directory (redis/directory.py) what the sessions of this worker hold, and keeps it.

Rules
- It is entered as it changes, and said again three times in an entry's life. That all of it is
  there is said at the end; where that is missing, because somebody removed it or Redis is another
  one, all is said again.
- What could not be entered, because Redis was away or full, is entered later; until then an answer
  that says that all can find an address waits for all workers instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from msgnode.bus.ports import Layer, Listener, TableObserver
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import after_barrier
from msgnode.core import addresses
from msgnode.core.faults import FAULTS
from msgnode.redis.directory import Directory, Kind
from msgnode.redis.faults import RedisFault

from .interest import Interest
from .transport import PeerTransport

_AT_ONCE = 200  # entries said again before Redis is waited for
_RETRY = 1.0


class Holdings(Protocol):
    """The sessions of this worker, and what they hold."""

    @property
    def sessions(self) -> Mapping[str, Listener]: ...

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        """The addresses a session owns, has subscribed, has learned."""
        ...


class DirectoryEntries:
    """One instance per worker. Implements the bus's TableObserver; `onward` hears the same.

    `on_back` is called when the directory is there again after it was away.
    """

    def __init__(
        self,
        directory: Directory,
        table: RoutingTable,
        transport: PeerTransport,
        local: Holdings,
        onward: TableObserver,
        interest: Interest,
    ) -> None:
        self.on_back: Callable[[], None] = lambda: None
        self._directory = directory
        self._transport = transport
        self._local = local
        self._onward = onward
        self._interest = interest
        self._epoch = transport.me.epoch
        self._placed: set[str] = set()  # sessions entered as ours
        self._filling: asyncio.Task[None] | None = None
        self._filled_at = monotonic()
        table.watcher = self
        directory.on_connected = self._fill_again

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Enter what this worker's sessions hold. Raises RedisFault."""
        await self._directory.start()
        if self._filling is not None:
            await self._filling

    async def run(self) -> None:
        """Keep the entries; until cancelled."""
        kept = monotonic()
        while True:
            await asyncio.sleep(_RETRY)
            with FAULTS.kept_to("directory"), suppress(RedisFault):
                self._interest.look_after()
                if self._directory.is_failing and not self._is_filling:
                    await self._directory.say_again()
                if await self._directory.is_filled(self._epoch):
                    now = monotonic()
                    if now - self._filled_at > 2 * _RETRY:  # it was away
                        self.on_back()
                    self._filled_at = now
                    if now - kept > self._directory.expiry / 3:
                        kept = now
                        self._fill_again(_RETRY / 20)
                elif not self._is_filling:  # somebody removed it
                    self._fill_again()

    async def stop(self) -> None:
        """Enter nothing more."""
        if self._filling is not None:
            self._filling.cancel()
        await self._interest.stop()
        await self._directory.close()

    # --- what is entered --------------------------------------------------------------------------

    def entered(self, session: Listener) -> None:
        self._onward.entered(session)
        if session.id not in self._placed:
            self.place(session)

    def left(self, session: Listener) -> None:
        self._onward.left(session)
        self._placed.discard(session.id)
        for kind, name in _sets_of(session):
            self._directory.release(kind, name, session.id)
        self._directory.release(Kind.SESSION, session.id, self._epoch)

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        self._onward.changed(layer, address, session, holds, before)
        if layer is Layer.OWNED:
            say = self._directory.claim if holds else self._directory.release
            say(Kind.ADDRESS, address, session.id)

    def place(self, session: Listener) -> None:
        """A session is with this worker from now on."""
        self._placed.add(session.id)
        self._directory.claim(Kind.SESSION, session.id, self._epoch)
        for kind, name in _sets_of(session):
            self._directory.claim(kind, name, session.id)

    def gone(self, session: Listener) -> None:
        """A session is with another worker from now on, which enters that."""
        self._placed.discard(session.id)
        self._directory.forget(Kind.SESSION, session.id, self._epoch)
        for kind, name in _sets_of(session):
            self._directory.forget(kind, name, session.id)

    def barrier(self) -> asyncio.Future[None] | None:
        """Done when every worker can find what the sessions of this one hold now."""
        if self._directory.is_failing:
            return self._transport.barrier()
        last = self._directory.last
        if last is None:
            return None
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not found.done():
                found.set_result(None)

        def said(_: asyncio.Future[object]) -> None:
            if self._directory.is_failing:
                after_barrier(self._transport.barrier, done)
            else:
                done()

        last.add_done_callback(said)
        return found

    def found(self) -> asyncio.Future[Any] | None:
        """The same, and when every worker can find what our sessions listen to now."""
        return _all_of(self.barrier(), self._interest.entered())

    def heard(self) -> asyncio.Future[Any] | None:
        """The same, and when whoever sends to what our sessions listen to now reaches them."""
        return _all_of(self.barrier(), self._interest.barrier())

    @property
    def is_filled(self) -> bool:
        """Whether what this worker holds was in the directory, and that could be asked, lately."""
        return monotonic() - self._filled_at < max(self._transport.timeout, 3 * _RETRY)

    @property
    def _is_filling(self) -> bool:
        return self._filling is not None and not self._filling.done()

    def _fill_again(self, pause: float = 0.0) -> None:
        if self._filling is not None:
            self._filling.cancel()
        self._filling = asyncio.create_task(self._fill(pause))

    async def _fill(self, pause: float) -> None:
        """Say again all that our sessions hold."""
        keep = self._directory.keep
        count = 0
        sessions = tuple(self._local.sessions)
        self._interest.begin(each for id_ in sessions for each in self._local.holdings(id_)[1])
        with suppress(RedisFault):  # once it is there again all is said anew
            await self._directory.say_again()
            for id_ in tuple(self._local.sessions):
                if id_ not in self._placed or id_ not in self._local.sessions:
                    continue
                kept = keep(Kind.SESSION, id_, self._epoch)
                for kind, name in _sets_of(self._local.sessions[id_]):
                    kept = keep(kind, name, id_)
                owned = self._local.holdings(id_)[0]
                for address in owned:
                    kept = keep(Kind.ADDRESS, address, id_)
                count += 2 + len(owned)
                if count >= _AT_ONCE:
                    count = 0
                    await kept
                    await asyncio.sleep(pause)
            await self._interest.enter_again(pause)
            self._directory.keep_filled(self._epoch)
            self.on_back()


def _all_of(*waiting: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
    left = [each for each in waiting if each is not None]
    return asyncio.gather(*left) if left else None


def _sets_of(session: Listener) -> Iterator[tuple[Kind, str]]:
    """The sets that a session stands in: its runtime's, and those of the addresses above that."""
    url = session.runtime_url
    line = addresses.runtime_line(url)  # of a worker's probe none
    for address in line[: len(line) // 2]:
        yield Kind.RUNTIME if address == url else Kind.BELOW, address

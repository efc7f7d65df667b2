"""A worker's lease: the worker serves only while it holds it, and detects its loss by itself.

Rules
- The lease is renewed after every third of it, in a thread of its own. It counts from before the
  successful renewal was sent, on a clock that runs while the process is stopped or the machine
  sleeps. So for this worker it ends no later than for the database.
- A renewal that takes longer than that is waited for again, and counts whenever it succeeds. No
  other is sent meanwhile.
- Callers use `check` before they serve. When the lease has expired they wait for one renewal, which
  decides: the worker continues, or the lease is lost.
- A lease is lost when the database says that the epoch is retired, or when it has expired and the
  database cannot be reached. Others retire an epoch only `margin` after its lease has ended.
- A worker whose event loop stood still for AWAKE seconds was frozen. Callers then wait until it has
  read what was ordered and revoked meanwhile (`catch_up`), at most _CATCH_UP seconds.
- If nobody can take over without writing to a file that this worker can read (SQLite), or there are
  no other workers, a lease that cannot be renewed is not lost as long as its row can be read, or
  nothing can be read: a full disk ends no session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from django.db import connection, connections

from msgnode.bus.ports import LEASE_CLOCK
from msgnode.core import database_errors, database_limit
from msgnode.core.pending import Pending

from . import membership_store

log = logging.getLogger(__name__)

_NEVER = float("-inf")
_RETRY = 0.3
"""Seconds until a failed renewal is retried."""

AWAKE = 2.0
"""Seconds that the event loop may stand still before this worker catches up."""
_LOOK = 0.5
_CATCH_UP = 3.0
"""Seconds until a worker goes on that cannot catch up, because the database does not answer."""


async def _nothing_missed() -> None:
    """Of a worker that reads no orders."""


def now() -> float:
    """Seconds of a clock that runs while the process is stopped or the machine sleeps."""
    return time.clock_gettime(LEASE_CLOCK)


def margin_of(seconds: float) -> float:
    """Seconds after the end of a lease before its worker counts as dead."""
    return max(0.5, seconds / 5)


class Lease:
    """The lease of one epoch of this worker.

    Args:
        epoch: this worker's epoch.
        seconds: the duration of the lease without a renewal.
        is_alone: whether the node has no other workers.

    Attributes:
        on_lost: callbacks, called once with the reason when the lease is lost.
        trouble: what was wrong with the database at the last renewal, in words; else empty.
        has_answer: whether the database answered the last renewal, be it with a refusal.
    """

    def __init__(self, epoch: str, seconds: float, is_alone: bool) -> None:
        self.seconds = seconds
        self.why_lost = ""
        self.trouble = ""
        self.has_answer = True
        self.renewed = 0
        self.failed = 0
        self.on_lost: list[Callable[[str], None]] = []
        self._epoch = epoch
        self._is_alone = is_alone
        self._describe: Callable[[], dict[str, Any]] = dict
        self._held = self._awake = self.until = float("inf")  # nothing is served before `begin`
        self._began = 0.0
        self._catch_up: Callable[[], Awaitable[None]] = _nothing_missed
        self._catching_up: asyncio.Future[None] | None = None
        self._renewal: asyncio.Future[None] | None = None
        self._asked: asyncio.Future[bool] | None = None  # the database
        self._waiting: list[Callable[[], None]] = []
        self._pause = seconds / 3
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lease")

    @property
    def age(self) -> float:
        """Seconds since the last successful renewal was sent."""
        return max(0.0, now() - self._began) if self._began else 0.0

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost."""
        return bool(self.why_lost)

    @property
    def is_held(self) -> bool:
        """Whether the lease has not expired, by the clock."""
        return now() < self._held

    def begin(self, sent: float) -> None:
        """Begin the lease: its row was inserted by a statement sent at this time."""
        self._began = sent
        self._hold_until(sent + self.seconds)

    def check(self) -> None:
        """Raise Pending while it is not certain that the lease is held."""
        if time.clock_gettime(LEASE_CLOCK) >= self.until:
            raise Pending("The worker's lease", self._when_held)

    async def run(
        self,
        describe: Callable[[], dict[str, Any]],
        catch_up: Callable[[], Awaitable[None]] = _nothing_missed,
    ) -> None:
        """Renew until cancelled, or lost.

        Args:
            describe: returns the columns of the row to store with each renewal.
            catch_up: reads what this worker has missed.
        """
        self._describe = describe
        self._catch_up = catch_up
        self._loop = asyncio.get_running_loop()
        self._awake = now() + AWAKE
        looking = asyncio.ensure_future(self._stay_awake())
        try:
            while not self.why_lost:
                left = self._held - now()
                await asyncio.sleep(max(0.05, min(self.seconds / 3, left, self._pause)))
                await self.renew()
        finally:
            looking.cancel()

    async def renew(self) -> None:
        """Renew once; concurrent callers share the renewal. Never raises."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.ensure_future(self._renew())
        await asyncio.shield(self._renewal)

    def lose(self, why: str) -> None:
        """Lose the lease. On the event loop; only the first call counts."""
        if not self.why_lost:
            self.why_lost = why
            self._held = self.until = _NEVER
            self._waiting.clear()
            for each in self.on_lost:
                each(why)

    def refused(self) -> None:
        """Handle a write that was refused because the epoch is retired. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.lose, "its epoch is retired")

    def close(self) -> None:
        """Stop renewing."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _hold_until(self, until: float) -> None:
        if not self.why_lost:  # a pending renewal does not undo the loss
            self._held = until
            self.until = min(self._held, self._awake)

    # --- after a freeze ---------------------------------------------------------------------------

    async def _stay_awake(self) -> None:
        """Note regularly that the event loop runs."""
        while not self.why_lost:
            if now() < self._awake:
                self._awake_until(now() + AWAKE)
            else:
                await self._wake()
            await asyncio.sleep(_LOOK)

    def _awake_until(self, until: float) -> None:
        self._awake = until
        self._hold_until(self._held)

    async def _wake(self) -> None:
        """Catch up, once for all callers. Never raises."""
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.ensure_future(self._read_missed())
        await asyncio.shield(self._catching_up)

    async def _read_missed(self) -> None:
        try:
            await asyncio.wait_for(self._catch_up(), _CATCH_UP)
        except Exception as error:
            log.warning("What this worker missed while it was frozen is not read yet: %r", error)
        self._awake_until(now() + AWAKE)
        self._go_on()

    # --- one renewal ------------------------------------------------------------------------------

    async def _renew(self) -> None:
        began = now()
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().run_in_executor(self._thread, self._write)
            self._asked.add_done_callback(partial(self._answered, began))
        patience = self.seconds / 3
        if began < self._held:  # at its end the decision follows at once
            patience = min(patience, self._held - began + 0.01)
        try:
            await asyncio.wait_for(asyncio.shield(self._asked), patience)
        except Exception as error:
            self.failed += 1
            self._pause = _RETRY
            log.warning("The lease of the worker could not be renewed: %r", error)
            self.trouble = database_errors.in_words(error)
            # A renewal waits for the lock of SQLite, which others may keep for long.
            self.has_answer = _is_file() or not database_errors.is_out_of_reach(error)
            if now() >= self._held:
                await self._decide()

    def _answered(self, sent: float, asked: asyncio.Future[bool]) -> None:
        """The database has answered the renewal that was sent then, in time or late."""
        if asked.cancelled() or asked.exception() is not None:
            return
        if not asked.result():
            self.lose("its epoch is retired")
        elif sent + self.seconds > self._held:  # else it was held since for longer
            self.renewed += 1
            self.trouble, self.has_answer = "", True
            self._pause = self.seconds / 3
            self.begin(sent)
            self._go_on()

    async def _decide(self) -> None:
        """Decide on an expired lease that the database has not renewed."""
        if not _is_file() and not self._is_alone:
            self.lose("it ran out, and the database is out of reach")
            return
        asked = asyncio.get_running_loop().run_in_executor(self._thread, self._is_registered)
        try:
            is_ours = await asyncio.wait_for(asyncio.shield(asked), self.seconds / 3)
        except Exception:
            asked.add_done_callback(_forget)
            is_ours = True
        if not is_ours:
            self.lose("its epoch is retired")
            return
        self._hold_until(now() + self.seconds / 2)  # and it is checked again before that
        self._go_on()

    def _write(self) -> bool:
        return self._with_database(
            lambda: membership_store.renew(self._epoch, self.seconds, **self._describe())
        )

    def _is_registered(self) -> bool:
        return self._with_database(lambda: membership_store.is_registered(self._epoch))

    def _with_database(self, call: Callable[[], bool]) -> bool:
        try:
            with database_limit.at_most(self.seconds):  # what is later than that helps nobody
                return call()
        except Exception:
            connections.close_all()
            raise

    # --- who waits for it -------------------------------------------------------------------------

    def _when_held(self, then: Callable[[], None]) -> None:
        """Call back once the lease is held again."""
        if not self.why_lost:  # else the callers' sockets are closed
            self._waiting.append(then)
            needed = self.renew() if not self.is_held else self._wake()
            asyncio.ensure_future(needed)  # noqa: RUF006  (kept by the lease itself)

    def _go_on(self) -> None:
        """Call back who waits, unless there is something else to wait for."""
        if now() >= self.until:
            return
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


def _is_file() -> bool:
    return connection.vendor == "sqlite"


def _forget(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()

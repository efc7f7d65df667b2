"""The supervisor: ends reservations that are over, and tells their owners.

Every worker runs this job; the one with the claim acts (turn_state.py). Its work is read from the
database each time, and all of it may be done twice. It runs off the event loop, except for sending
messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import TypeVar

from msgnode.bus.periodic import every
from msgnode.core.faults import FAULTS
from msgnode.storage.claims import NotHolder
from msgnode.storage.database_threads import DatabaseThreads
from msgnode.storage.fence import Fenced

from . import sweep, turn_state
from .notifier import Notifier
from .relays import Relays

EVERY = 1.0
UNUSED_SECONDS = 60.0
"""A call is set up within a minute, or not at all."""
FORGET_EVERY = 3600.0
MAX_CALLS = 100
"""Calls that may wait for its thread: it makes one after another."""

Result = TypeVar("Result")


class Supervisor:
    """One per worker.

    Args:
        epoch: the worker's epoch.
        notifier: notifies owners.
        unused: seconds for which a reservation may stay unused.
        grace: seconds for which it outlives its session.
        relays: the TURN servers, if the node manages them.
        kept: how long an ended reservation is kept.
        on_ended: called with each ended reservation, once its owner was notified.
    """

    def __init__(
        self,
        epoch: str,
        notifier: Notifier,
        unused: float,
        grace: float,
        relays: Relays | None,
        kept: timedelta,
        on_ended: Callable[[sweep.Ended], None],
    ) -> None:
        self.supervises = False
        self.ended: Counter[str] = Counter()
        """Reservations that have ended, by reason."""
        self._on_ended = on_ended
        self._epoch = epoch
        self._notifier = notifier
        self._unused = unused
        self._grace = grace
        self._kept = kept
        self._forget_from = 0.0
        self.relays = relays
        self._thread = DatabaseThreads("qos-supervisor", 1, MAX_CALLS, "The supervisor is behind.")

    async def run(self) -> None:
        """Runs until cancelled; what fails is tried again in the next round."""
        says = "Reservations could not be supervised"
        await every(EVERY, self._round_or_rest, "supervisor", says)

    async def _round_or_rest(self) -> None:
        try:
            await self.round()
        except (NotHolder, Fenced):
            await self._rest()

    async def round(self) -> None:
        """One look, if this worker supervises."""
        self.supervises = await self.in_thread(lambda: turn_state.hold_claim(self._epoch))
        if not self.supervises:
            await self._rest()
            return
        if self.relays is not None:
            await self._look(self.relays)
        await self.in_thread(lambda: sweep.sweep(self._epoch, self._unused, self._grace))
        await self._forget()
        ended = await self.in_thread(sweep.to_tell)
        done = self._notifier.tell(ended)
        await self.in_thread(lambda: sweep.told(done))
        for each in ended:
            self.ended[each.reason] += 1
            self._on_ended(each)

    async def _look(self, relays: Relays) -> None:
        """Visit the TURN servers; a failure there does not delay the end of reservations."""
        try:
            await relays.round(self.in_thread)
        except (NotHolder, Fenced):
            raise
        except Exception as error:
            FAULTS.note("look at the TURN servers", error)

    async def _forget(self) -> None:
        """Delete old rows, some in each round; when there are none, check again in an hour."""
        if monotonic() < self._forget_from:
            return
        if not await self.in_thread(lambda: sweep.forget(self._epoch, self._kept)):
            self._forget_from = monotonic() + FORGET_EVERY

    async def _rest(self) -> None:
        """Another worker supervises."""
        self.supervises = False
        if self.relays is not None:
            await self.relays.stop()

    async def in_thread(self, call: Callable[[], Result]) -> Result:
        """Run a call that uses the database, after those before it."""
        return await self._thread.run(call)

    async def stop(self) -> None:
        """Let another worker supervise."""
        supervised = self.supervises
        await self._rest()
        if supervised:
            await self.in_thread(lambda: turn_state.give_up_claim(self._epoch))
        self._thread.stop()

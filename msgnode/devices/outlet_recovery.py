"""Restores webhooks and push subscriptions of sessions that have come to this worker.

They come at its start, from a worker that stops, or from one that has ended. A session that cannot
be resumed yet is retried with growing pauses, until it has ended or is at another worker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from msgnode.core.back_off import BackOff
from msgnode.core.errors import BadMessage, Forbidden, NodeError, NotIdentified
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity
from msgnode.sessions.session import LiveSession

from .outlet_store import PUSH, WEBHOOK, OutletStore, StoredOutlet
from .push import PushWakeups
from .resumption import DeviceSessions
from .token import SessionKey
from .webhook import Webhooks

log = logging.getLogger(__name__)

AT_ONCE = 100
LIMIT = 10.0
"""Seconds until a session that cannot be resumed is left for later."""
LOOKS_EVERY = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


class OutletRecovery:
    """One instance per worker; `recovered` counts what was set again.

    Args:
        store: of the rows.
        sessions: of devices.
        here: a session of this worker by its id.
        webhooks: of this worker; None while they are switched off.
        wakeups: of this worker; None while they are switched off.
        may_have_webhooks: whether sessions of an identity may.
    """

    def __init__(
        self,
        store: OutletStore,
        sessions: DeviceSessions,
        here: Callable[[str], LiveSession | None],
        webhooks: Webhooks | None,
        wakeups: PushWakeups | None,
        may_have_webhooks: Callable[[Identity | None], bool],
    ) -> None:
        self.recovered = 0
        self._store = store
        self._sessions = sessions
        self._here = here
        self._webhooks = webhooks
        self._wakeups = wakeups
        self._may_have_webhooks = may_have_webhooks
        self._due: dict[str, tuple[float, BackOff]] = {}  # when to look, and the pauses after that

    def __len__(self) -> int:
        return len(self._due)

    def arrived(self, session: LiveSession) -> None:
        """A session is this worker's from now on, or its webhook has lost the connection."""
        self._due[session.id] = (0.0, BackOff(FIRST_PAUSE, LONGEST_PAUSE))

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            with FAULTS.kept_to("outlet"):
                await self._look()

    async def _look(self) -> None:
        now = time.monotonic()
        due = [id_ for id_, (at, _) in self._due.items() if at <= now][:AT_ONCE]
        if not due or self._sessions.devices.is_closed:  # the worker stops
            return
        try:
            rows = await self._store.of(due)
        except NodeError as error:  # the database is away
            log.warning("Webhooks and push subscriptions could not be read yet: %s", error)
            for id_ in due:
                self._later(id_, self._due[id_][1])
            return
        pauses = {id_: self._due.pop(id_)[1] for id_ in due}
        await asyncio.gather(*(self._recover(row, pauses[row.session_id]) for row in rows))

    def _later(self, id_: str, back_off: BackOff) -> None:
        self._due[id_] = (time.monotonic() + back_off.failed(), back_off)

    async def _recover(self, row: StoredOutlet, back_off: BackOff) -> None:
        session = self._here(row.session_id)
        if session is None or session.has_ended:
            return
        with FAULTS.kept_to("outlet"):
            try:
                async with asyncio.timeout(LIMIT):
                    await self._set(row, session)
            except (BadMessage, Forbidden, NotIdentified) as error:
                log.info("A %s is not set again: %s", row.kind, error.description)
                await self._store.forget(row.session_id, row.kind)
            except (NodeError, TimeoutError) as error:
                log.info("A %s is set again later: %s", row.kind, error)
                self._later(row.session_id, back_off)

    async def _set(self, row: StoredOutlet, session: LiveSession) -> None:
        if row.kind == PUSH and self._wakeups is not None:
            self._wakeups.subscribe(session, self._wakeups.read({"endpoint": row.url}))
            self.recovered += 1
        elif row.kind == WEBHOOK and self._webhooks is not None:
            await self._resume(row, session, self._webhooks)

    async def _resume(self, row: StoredOutlet, session: LiveSession, webhooks: Webhooks) -> None:
        if row.target is None:
            raise BadMessage("No key of the node opens what is stored of it.")
        if not self._may_have_webhooks(session.speaker.identity):
            raise Forbidden("Its session may no longer have a webhook.")
        key = SessionKey(session.runtime_url, row.token)
        listener = await self._sessions.find(key)
        if not listener.is_here:
            return
        device = await self._sessions.device(listener, key, session.speaker.remote_address)
        if webhooks.of(device) is not None:
            return
        if device.stop_reading is not None:  # it came back itself, and reads
            await self._store.forget(row.session_id, row.kind)
            return
        webhooks.begin(device, row.target)
        self.recovered += 1

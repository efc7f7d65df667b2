"""The rows of webhooks and push subscriptions, so that they outlive their worker.

Session tokens and the keys of webhooks' signatures are stored encrypted.

Those of sessions that have come to this worker are restored. They come at its start, from a worker
that stops, or from one that has ended. A session that cannot be resumed yet is retried with growing
pauses, until it has ended or is at another worker.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgnode import models
from msgnode.bus.periodic import every
from msgnode.bus.writing import Call, Writer, result_of
from msgnode.core.back_off import BackOff
from msgnode.core.errors import BadMessage, Forbidden, NodeError, NotIdentified
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity
from msgnode.sessions.session import LiveSession

from .push import PushWakeups
from .resumption import DeviceSessions
from .token import SessionKey
from .webhook import Webhooks, WebhookTarget

WEBHOOK, PUSH = models.DeviceOutlet.Kind.WEBHOOK, models.DeviceOutlet.Kind.PUSH


@dataclass(frozen=True, slots=True)
class StoredOutlet:
    """A row; `token`, which opens the session, and `target` are those of a webhook.

    They are empty where no key opens what is stored.
    """

    session_id: str
    kind: str
    url: str
    token: str = ""
    target: WebhookTarget | None = None


class OutletStore:
    """One instance per worker; its writes share the worker's group commits.

    Args:
        writer: of the worker.
        seal: encrypts a secret for the database.
        unseal: the secret again; "" if no key opens it.
    """

    def __init__(
        self, writer: Writer, seal: Callable[[str], str], unseal: Callable[[str], str]
    ) -> None:
        self._writer = writer
        self._seal = seal
        self._unseal = unseal

    async def keep_webhook(self, session_id: str, target: WebhookTarget, token: str) -> None:
        """Returns after the commit. Raises Unavailable."""
        key = base64.b64encode(target.key).decode()
        await self._keep(session_id, WEBHOOK, target.url, f"{key} {token}")

    async def keep_push(self, session_id: str, endpoint: str) -> None:
        """Returns after the commit. Raises Unavailable."""
        await self._keep(session_id, PUSH, endpoint, "")

    def forget(self, session_id: str, kind: str = "") -> Future[Any]:
        """Delete the rows of a session, or the one of this kind."""
        rows = models.DeviceOutlet.objects.filter(session_id=uuid.UUID(session_id))
        if kind:
            rows = rows.filter(kind=kind)

        def delete() -> None:
            rows.delete()

        return self._writer.submit(Call(delete))

    async def of(self, session_ids: Sequence[str]) -> list[StoredOutlet]:
        """Those of sessions that have not ended. Raises Unavailable."""
        rows = models.DeviceOutlet.objects.filter(session_id__in=list(map(uuid.UUID, session_ids)))
        rows = rows.exclude(session__state=models.Session.State.CLOSED)
        return await result_of(self._writer, lambda: [self._read(row) for row in rows.all()])

    async def _keep(self, session_id: str, kind: str, url: str, secret: str) -> None:
        sealed = self._seal(secret)
        id_ = uuid.UUID(session_id)
        live = models.Session.objects.filter(id=id_).exclude(state=models.Session.State.CLOSED)

        def write() -> None:
            if live.exists():
                models.DeviceOutlet.objects.update_or_create(
                    session_id=id_, kind=kind, defaults={"url": url, "sealed": sealed}
                )

        await self._writer.submit(Call(write))

    def _read(self, row: models.DeviceOutlet) -> StoredOutlet:
        key, _, token = self._unseal(row.sealed).partition(" ")
        target = WebhookTarget(row.url, base64.b64decode(key)) if key else None
        return StoredOutlet(row.session_id.hex, row.kind, row.url, token, target)


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
        await every(LOOKS_EVERY, self._look, "outlet")

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

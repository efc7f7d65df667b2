"""The rows of webhooks and push subscriptions, so that they outlive their worker.

Session tokens and the keys of webhooks' signatures are stored encrypted.
"""

from __future__ import annotations

import base64
import uuid
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgnode import models
from msgnode.bus.writing import Call, Writer

from .webhook import WebhookTarget

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
        found: list[StoredOutlet] = []
        ids = [uuid.UUID(each) for each in session_ids]

        def look() -> None:
            rows = models.DeviceOutlet.objects.filter(session_id__in=ids)
            rows = rows.exclude(session__state=models.Session.State.CLOSED)
            found[:] = [self._read(row) for row in rows]

        await self._writer.submit(Call(look))
        return found

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

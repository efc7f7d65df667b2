"""The rows of sessions: written through the group writer, read once at start.

Of the rows of closed sessions the newest are kept, per source and in total. Those closed before the
worker's start are left to the purge (msgnode.tasks).
"""

from __future__ import annotations

import uuid
from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.db import connection, transaction

from msgnode import models
from msgnode.bus.writing import Call, Create, Delete, Together, Update, Writer
from msgnode.core import addresses
from msgnode.core.identity import Identity
from msgnode.core.rates import source_of

from .bans import Ban, BanList
from .session import LiveSession

SHARE_OF_A_SOURCE = 0.1
"""Of all rows: one source cannot have the rows of the others deleted."""


class ClosedSessions:
    """One instance per worker."""

    def __init__(self, per_source: float, total: float) -> None:
        self._per_source = per_source
        self._total = total
        self._sources: OrderedDict[str, str] = OrderedDict()  # oldest first
        self._of: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, session_id: str, address: str) -> list[str]:
        """Note a closed session; return the ids of the sessions whose rows can be deleted."""
        source = source_of(address)
        self._sources[session_id] = source
        mine = self._of.setdefault(source, OrderedDict())
        mine[session_id] = None
        gone: list[str] = []
        if len(mine) > self._per_source:
            gone.append(self._forget(next(iter(mine))))
        if len(self._sources) > self._total:
            gone.append(self._forget(next(iter(self._sources))))
        return gone

    def _forget(self, session_id: str) -> str:
        source = self._sources.pop(session_id)
        mine = self._of[source]
        del mine[session_id]
        if not mine:
            del self._of[source]
        return session_id


Rows = list[models.Session]

FREE = ""
"""The epoch of sessions that a clean stop has left, and that have missed nothing."""
_AT_ONCE = 500


def _unchecked() -> None:
    """The check of a process without a fence."""


class SessionStore:
    """Writes and reads the rows of sessions.

    `worker` and `epoch` identify the process, and its start, that held a session last; `check`
    raises inside a transaction if that epoch may no longer write.
    """

    def __init__(
        self,
        writer: Writer,
        worker: str,
        epoch: str,
        closed: ClosedSessions,
        check: Callable[[], None] = _unchecked,
    ) -> None:
        self._check = check
        self._writer = writer
        self._worker = worker
        self._epoch = epoch
        self._closed = closed

    def opened(self, session: LiveSession) -> Future[Any]:
        """Insert the row of a new session; done with the commit."""
        row = {
            "id": session.id,
            "runtime_url": session.runtime_url,
            "token_hash": session.token_hash,
            "state": models.Session.State.OPEN,
            "handshake": session.handshake,
            "remote_address": session.speaker.remote_address,
            "visits_from": visits_from(session),
            **_of_identity(session),
            "worker": self._worker,
            "epoch": self._epoch,
            "opened_at": datetime.now(UTC),
        }
        return self._writer.submit(Create(models.Session, [row]))

    def resumed(self, session: LiveSession) -> Future[Any]:
        """Store the new token, and this worker as the session's; done with the commit."""
        return self._update(
            session,
            token_hash=session.token_hash,
            resumptions=session.resumptions + 1,
            state=models.Session.State.OPEN,
            handshake=session.handshake,
            remote_address=session.speaker.remote_address,
            visits_from=visits_from(session),
            **_of_identity(session),
            worker=self._worker,
            epoch=self._epoch,
            detached_at=None,
        )

    def identified(self, session: LiveSession) -> Future[Any]:
        """Store the session's subject, or that it has none; done with the commit."""
        return self._update(session, **_of_identity(session))

    def detached(self, session: LiveSession) -> None:
        """Store since when it has no socket; nobody waits for the commit."""
        now = datetime.now(UTC)
        self._update(session, state=models.Session.State.DETACHED, detached_at=now)

    def closed(self, session: LiveSession, reason: str) -> Future[Any]:
        """Mark the row as closed, and delete the rows of what the session held.

        Rows of the oldest closed sessions beyond the limit are deleted too.
        """
        columns = {
            "state": models.Session.State.CLOSED,
            "closed_at": datetime.now(UTC),
            "close_reason": reason[:100],
        }
        gone = self._closed.add(session.id, session.speaker.remote_address)
        return self._writer.submit(
            Update(session.id, columns),
            Delete(models.Allocation, session.id),
            Delete(models.Subscription, session.id),
            *(Together(_delete_closed, each) for each in gone),
        )

    def moved(self, session: LiveSession) -> Future[Any]:
        """Store this worker as the session's."""
        return self._update(session, worker=self._worker, epoch=self._epoch)

    def left(self, session: LiveSession, worker: str, epoch: str) -> Future[Any]:
        """Store another worker as the session's."""
        return self._update(session, worker=worker, epoch=epoch)

    def written(self) -> Future[Any]:
        """Done when all that was submitted before is committed, or refused."""
        return self._writer.submit()

    def stopped(self, complete: list[LiveSession]) -> Future[Any]:
        """Mark sessions at a clean stop as free."""
        ids = [uuid.UUID(session.id) for session in complete]

        def mark() -> None:
            live = models.Session.objects.exclude(state=models.Session.State.CLOSED)
            for start in range(0, len(ids), 500):
                live.filter(id__in=ids[start : start + 500]).update(epoch=FREE)

        return self._writer.submit(Call(mark))

    def take_over(self, epochs: Sequence[str] | None, ids: Sequence[str] = ()) -> Iterator[Rows]:
        """Take over sessions of retired epochs for this worker, in batches. Blocks.

        If several workers try, each session goes to one of them.

        Args:
            epochs: the retired epochs; None: all that are not registered.
            ids: the sessions to take over; none: all of these epochs.
        """
        if epochs is None:  # in this order, because a worker is registered before it has sessions
            found = models.Session.objects.exclude(state=models.Session.State.CLOSED)
            held = set(found.order_by().values_list("epoch", flat=True).distinct())
            epochs = list(held - set(models.Worker.objects.values_list("epoch", flat=True)))
        while rows := self._take_some(epochs, ids):
            yield rows

    def _take_some(self, epochs: Sequence[str], ids: Sequence[str]) -> Rows:
        wanted = models.Session.objects.exclude(state=models.Session.State.CLOSED)
        if ids:
            wanted = wanted.filter(id__in=[uuid.UUID(id_) for id_ in ids])
            wanted = wanted.exclude(epoch__in=models.Worker.objects.values("epoch"))
        else:
            wanted = wanted.filter(epoch__in=epochs)
        with transaction.atomic():
            self._check()
            rows = list(wanted.order_by("opened_at").select_for_update()[:_AT_ONCE])
            taken = models.Session.objects.filter(id__in=[row.id for row in rows])
            taken.update(worker=self._worker, epoch=self._epoch)
        return rows

    @staticmethod
    def load() -> Iterator[models.Session]:
        """Every session that has not ended, oldest first. Blocks: for use at the node's start."""
        live = models.Session.objects.exclude(state=models.Session.State.CLOSED)
        yield from live.order_by("opened_at").iterator(chunk_size=2000)
        connection.close()

    @staticmethod
    def identity_of(row: models.Session) -> Identity | None:
        """The verified subject a session is bound to."""
        if not row.subject:
            return None
        try:
            return msgspec.convert(row.identity, Identity)
        except msgspec.ValidationError:
            return None

    @staticmethod
    def load_bans() -> BanList:
        """The bans in force. Blocks."""
        in_force = models.Ban.objects.exclude(expires_at__lte=datetime.now(UTC))
        return BanList(
            Ban(row.kind, row.value, row.reason, row.expires_at.timestamp())
            if row.expires_at
            else Ban(row.kind, row.value, row.reason)
            for row in in_force.iterator(chunk_size=2000)
        )

    def _update(self, session: LiveSession, **columns: Any) -> Future[Any]:
        return self._writer.submit(Update(session.id, columns))


def _delete_closed(ids: list[str]) -> None:
    closed = models.Session.objects.filter(state=models.Session.State.CLOSED)
    for start in range(0, len(ids), _AT_ONCE):
        closed.filter(id__in=ids[start : start + _AT_ONCE]).delete()


def visits_from(session: LiveSession) -> str:
    """The domain of a visitor, "" for other sessions."""
    return addresses.parse(session.runtime_url).home[:255] if session.speaker.is_visitor else ""


def _of_identity(session: LiveSession) -> dict[str, Any]:
    """The columns of a session's identity."""
    identity, peer = session.speaker.identity, session.speaker.peer
    node = {"peer": peer} if peer else {}
    if identity is None:
        said = {"said": True} if session.has_said_who else {}
        return {"issuer": "", "subject": "", "identity": said | node}
    kept = {**msgspec.to_builtins(identity), "proof": session.proof, **node}
    return {"issuer": identity.issuer[:255], "subject": identity.subject[:255], "identity": kept}

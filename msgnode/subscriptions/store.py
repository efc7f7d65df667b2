"""The rows of subscriptions and claims: written through the group writer, read once at start."""

from __future__ import annotations

import uuid
from asyncio import Future
from collections.abc import Iterator, Sequence
from typing import Any

from django.db import connection

from msgnode import models
from msgnode.bus.ports import Listener
from msgnode.bus.writing import Call, Change, Create, Delete, Writer
from msgnode.core import addresses
from msgnode.core.errors import Conflict

Kind = models.Allocation.Kind


class SubscriptionStore:
    """The rows of subscriptions; changes are committed in groups."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def subscribed(
        self,
        session: Listener,
        subscribed: Sequence[str],
        claimed: Sequence[str],
        taken_over: dict[str, Listener],
        result: Any,
    ) -> Future[Any]:
        """Store subscriptions, new claims, and claims taken over from an earlier session."""
        id_ = session.id
        changes: list[Change] = []
        if subscribed:
            rows = [{"session_id": id_, "address": each} for each in subscribed]
            changes.append(Create(models.Subscription, rows))
        if claimed:
            changes.append(Create(models.Allocation, [_claim(each, id_) for each in claimed]))
        for address, owner in taken_over.items():
            changes.append(Call(_take_over(address, owner.id, id_)))
        return self._writer.submit(*changes, result=result)

    def unsubscribed(
        self,
        session: Listener,
        gone: Sequence[str],
        owned: Sequence[str],
        unclaimed: list[str],
        result: Any,
    ) -> Future[Any]:
        """Delete subscriptions, and those of the owned addresses that were claims.

        `unclaimed` gets the latter after the commit.
        """
        id_ = session.id
        ended = Delete(models.Subscription, id_, gone)
        if not owned:
            return self._writer.submit(ended, result=result)

        def unclaim() -> None:
            unclaimed.clear()
            for start in range(0, len(owned), 500):
                claims = models.Allocation.objects.filter(
                    session_id=id_, kind=Kind.CLAIMED, address__in=owned[start : start + 500]
                )
                unclaimed.extend(claims.values_list("address", flat=True))
                claims.delete()

        return self._writer.submit(ended, Call(unclaim), result=result)

    @staticmethod
    def load(sessions: Sequence[uuid.UUID] | None = None) -> Iterator[tuple[str, str]]:
        """The (address, hex session id) of all subscriptions, or of some sessions'. Blocks."""
        found = models.Subscription.objects.order_by("id")
        if sessions is not None:
            found = found.filter(session_id__in=sessions)
        rows = found.values_list("address", "session_id")
        for address, session_id in rows.iterator(chunk_size=5000):
            yield address, session_id.hex
        if sessions is None:
            connection.close()


def _claim(address: str, session_id: str) -> dict[str, Any]:
    return {
        "address": address,
        "scheme": addresses.parse(address).scheme,
        "session_id": session_id,
        "kind": Kind.CLAIMED,
    }


def _take_over(address: str, before: str, after: str) -> Any:
    def take_over() -> None:
        rows = models.Allocation.objects.filter(address=address, session_id=before)
        if not rows.update(session_id=after):
            raise Conflict(f"{address} belongs to another session.")

    return take_over

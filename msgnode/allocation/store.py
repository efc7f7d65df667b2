"""Allocation rows: written through the group writer, read once at start; pool leases."""

from __future__ import annotations

import uuid
from asyncio import Future
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from msgnode import models
from msgnode.bus.last_owners import LAST_OWNERS, LastOwnerCache
from msgnode.bus.ports import Listener
from msgnode.bus.writing import Call, Create, Delete, Writer
from msgnode.core.errors import Unavailable
from msgnode.storage import control

Kind = models.Allocation.Kind


OWNERS_KEPT = LAST_OWNERS
"""Most free addresses whose last owner is stored; a worker's memory has no more."""
OWNED_PER_SUBJECT = 50_000
"""Most of them per subject."""
_OWNERS_AT_ONCE = 5_000
_HEARD = timedelta(minutes=1)
"""By then every worker has read the control message about owners."""


class Row(NamedTuple):
    """An allocation as loaded: `session` is the hex id."""

    address: str
    session: str
    key: str


class PoolExhausted(Unavailable):
    """A pool does not have enough free addresses."""


class AllocationStore:
    """The rows of allocations and pools; changes are committed in groups."""

    LEFT = "owners.left"
    """The kind of the control message that tells other workers who has left addresses."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._left = 0  # rows of owners written since the oldest were looked for; writer's thread

    def allocated(
        self, session: Listener, scheme: str, key: str, addresses: Sequence[str], result: Any
    ) -> Future[Any]:
        """Store addresses of a session; `result` is the result of the future."""
        common = {
            "scheme": scheme,
            "session_id": session.id,
            "allocation_key": key,
            "kind": Kind.MADE,
            "created_at": timezone.now(),
        }
        rows = [{"address": address, **common} for address in addresses]
        return self._writer.submit(Create(models.Allocation, rows), result=result)

    def released(self, session: Listener, addresses: Sequence[str], result: Any) -> Future[Any]:
        """Delete the rows of a session's addresses; `result` is the result of the future."""
        gone = Delete(models.Allocation, session.id, addresses)
        return self._writer.submit(gone, result=result)

    def lent(
        self, session: Listener, scheme: str, key: str, number: int, is_visitor: bool = False
    ) -> Future[list[str]]:
        """Lend addresses of a pool, those for visitors to visitors only; none if there are too few.

        Too few is no failure of the transaction, which is shared.
        """
        lent: list[str] = []
        id_ = uuid.UUID(session.id)

        def lend() -> None:
            lent.clear()
            taken = models.Allocation.objects.filter(scheme=scheme).values("address")
            all_ = models.PoolAddress.objects.filter(pool__scheme=scheme, for_visitors=is_visitor)
            free = all_.exclude(address__in=taken)
            lent.extend(free.values_list("address", flat=True)[:number])
            if len(lent) < number:
                lent.clear()
                return
            models.Allocation.objects.bulk_create(
                models.Allocation(
                    address=address,
                    scheme=scheme,
                    session_id=id_,
                    allocation_key=key,
                    kind=Kind.LENT,
                )
                for address in lent
            )

        return self._writer.submit(Call(lend), result=lent)

    def left(self, addresses: Sequence[str], subject: tuple[str, str]) -> None:
        """Store the subject that has left these addresses, so that they stay reserved for it.

        Only the newest are kept, if there are too many.
        """
        issuer, name = subject
        addresses = addresses[-OWNED_PER_SUBJECT:]
        now = timezone.now()
        rows = [
            models.AddressOwner(address=address, issuer=issuer, subject=name, seen_at=now)
            for address in addresses
        ]

        def save() -> None:
            models.AddressOwner.objects.bulk_create(
                rows,
                batch_size=500,
                update_conflicts=True,
                update_fields=("issuer", "subject", "seen_at"),
                unique_fields=("address",),
            )
            for start in range(0, len(addresses), 500):
                some = list(addresses[start : start + 500])
                control.post(AllocationStore.LEFT, addresses=some, issuer=issuer, subject=name)
            self._left += len(addresses)
            if self._left >= _OWNERS_AT_ONCE:
                self._left = 0
                _trim_owners(issuer, name)

        self._writer.submit(Call(save))

    @staticmethod
    def load_owners(owners: LastOwnerCache) -> None:
        """Load the last owners of free addresses. Blocks."""
        rows = models.AddressOwner.objects.order_by("seen_at")
        for row in rows.iterator(chunk_size=5000):
            owners.note([row.address], (row.issuer, row.subject))

    @staticmethod
    def load(sessions: Sequence[uuid.UUID] | None = None) -> Iterator[Row]:
        """Every allocation, or those of a few sessions. Blocks."""
        found = models.Allocation.objects.order_by("id")
        if sessions is not None:
            found = found.filter(session_id__in=sessions)
        rows = found.values_list("address", "session_id", "allocation_key")
        for address, session_id, key in rows.iterator(chunk_size=5000):
            yield Row(address, session_id.hex, key)
        if sessions is None:
            connection.close()

    @staticmethod
    def pool_schemes() -> frozenset[str]:
        """Schemes with a pool. Blocks."""
        return frozenset(models.AddressPool.objects.values_list("scheme", flat=True))


def _trim_owners(issuer: str, subject: str) -> None:
    """Delete the least recently used rows beyond the limits, per subject and in total. Blocks."""
    owners = models.AddressOwner.objects.order_by("-seen_at", "-id")
    for rows, kept in (
        (owners.filter(issuer=issuer, subject=subject), OWNED_PER_SUBJECT),
        (owners, OWNERS_KEPT),
    ):
        ids = list(rows.values_list("pk", flat=True)[kept:])
        for start in range(0, len(ids), 500):
            models.AddressOwner.objects.filter(pk__in=ids[start : start + 500]).delete()
    told = models.ControlMessage.objects.filter(
        kind=AllocationStore.LEFT, created_at__lt=Now() - _HEARD
    )
    told.delete()

"""The fence around a worker's durable writes: a retired epoch changes nothing any more.

Whoever takes over a worker's sessions deletes the row of its epoch first. A writer asks for that
row inside each of its transactions; on PostgreSQL it is locked for share, so that either the
transaction commits before the row goes, or the row is gone and the transaction is refused. SQLite
has one writer at a time, which is the same.

A process may be frozen in the middle of a transaction. PostgreSQL then ends the transaction after
`idle` seconds, so that nobody waits for it for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import connection

from msgnode.core.errors import Unavailable
from msgnode.models import Worker

Check = Callable[[], None]
"""Raises Fenced if this worker may not write any more; called inside a transaction."""


class Fenced(Unavailable):
    """This worker's epoch is retired: others have, or may have, its sessions."""

    def __init__(self) -> None:
        super().__init__("This worker of the node has lost its lease; connect again.")


def unfenced() -> None:
    """The check of a process that is no worker: it may write."""


class Fence:
    """The check of one epoch.

    Args:
        epoch: of this worker.
        idle: seconds after which PostgreSQL ends a transaction that does nothing.
    """

    def __init__(self, epoch: str, idle: float) -> None:
        self._epoch = epoch
        self._idle = str(max(1, int(idle * 1000)))

    def check(self) -> None:
        """Whether this worker may write, inside its transaction. Raises Fenced."""
        table = connection.ops.quote_name(Worker._meta.db_table)
        if connection.vendor == "postgresql":
            statement = (
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true) "  # noqa: S608
                f"FROM {table} WHERE epoch = %s FOR KEY SHARE"
            )
            values = [self._idle, self._epoch]
        else:
            statement = f"SELECT 1 FROM {table} WHERE epoch = %s"  # noqa: S608
            values = [self._epoch]
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            if cursor.fetchone() is None:
                raise Fenced

"""The fence around a worker's writes: a retired epoch can write nothing.

Whoever takes over a worker's sessions deletes the row of its epoch first. A writer checks that row
inside each of its transactions. On PostgreSQL the row is share-locked, so either the transaction
commits before the row is deleted, or the row is gone and the transaction is refused. SQLite has one
writer at a time, with the same effect.

A process may be frozen in the middle of a transaction. PostgreSQL ends the transaction after `idle`
seconds, so that nobody waits for it for ever. A transaction waits for a row that somebody else has
locked for a quarter of the time it has. The statement also tells the transaction's id, by which
is found out whether a transaction was committed whose COMMIT was not answered (PostgreSQL only):
the connection may break, or the server freeze, after the server has read a COMMIT and before the
client has read its answer. Then the transaction may be committed, now or once the server goes on.
SQLite answers each COMMIT. All functions block.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from enum import Enum

from django.db import DataError, connection

from msgnode.core import database_limit
from msgnode.core.errors import Unavailable
from msgnode.models import Worker

_here = threading.local()


class Outcome(Enum):
    """What has become of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    IN_PROGRESS = "in progress"


def begun(id_: str) -> None:
    """Note the server's id of the transaction that this thread has begun (fence.py)."""
    _here.transaction_id = id_


def transaction_id() -> str:
    """The server's id of this thread's latest transaction, "" if none was noted."""
    return str(getattr(_here, "transaction_id", ""))


def outcome(id_: str) -> Outcome:
    """What has become of the transaction with this id; asked on another connection.

    Raises:
        OperationalError: the server is out of reach, or does not answer.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_xact_status(%s::text::xid8)", [id_])
            status = cursor.fetchone()[0]
    except DataError:  # it is none of this server's, which has taken another's place
        return Outcome.ABORTED
    return Outcome(status or "aborted")  # one that is too old to be known does not occur in seconds


_LOCKED = 8.0
"""Seconds for a transaction without a limit, of which it waits a quarter for a locked row."""

Check = Callable[[], None]
"""Raises Fenced if this worker may no longer write; called inside a transaction."""


class Fenced(Unavailable):
    """This worker's epoch is retired: others have its sessions, or may take them."""

    def __init__(self) -> None:
        super().__init__("This worker of the node has lost its lease; connect again.")


def unfenced() -> None:
    """The check of a process that is not a worker, which may always write."""


class Fence:
    """The check of one epoch.

    Args:
        epoch: the worker's epoch.
        idle: seconds after which PostgreSQL ends an idle transaction.
    """

    def __init__(self, epoch: str, idle: float) -> None:
        self._epoch = epoch
        self._idle = str(max(1, int(idle * 1000)))

    def check(self) -> None:
        """Raise Fenced if this worker may not write; called inside a transaction."""
        table = connection.ops.quote_name(Worker._meta.db_table)
        if connection.vendor == "postgresql":
            statement = (
                "SELECT pg_current_xact_id()::text, set_config('lock_timeout', %s, true), "  # noqa: S608
                "set_config('idle_in_transaction_session_timeout', %s, true) "
                f"FROM {table} WHERE epoch = %s FOR KEY SHARE"
            )
            locked = (database_limit.seconds() or _LOCKED) / 4
            values = [str(math.ceil(locked * 1000)), self._idle, self._epoch]
        else:
            statement = f"SELECT 1 FROM {table} WHERE epoch = %s"  # noqa: S608
            values = [self._epoch]
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            row = cursor.fetchone()
            if row is None:
                raise Fenced
            if connection.vendor == "postgresql":
                begun(row[0])

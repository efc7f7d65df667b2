"""Finds out whether a transaction was committed whose COMMIT was not answered. PostgreSQL only.

The connection may break, or the server freeze, after the server has read a COMMIT and before the
client has read its answer. Then the transaction may be committed, now or once the server goes on.
SQLite answers each COMMIT. All functions block.
"""

from __future__ import annotations

import threading
from enum import Enum

from django.db import DataError, connection

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

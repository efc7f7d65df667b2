"""Migrations of PostgreSQL: by one process at a time, and never long in the way of who writes.

A statement that changes a table waits for everybody who uses it, such as a backup, and everybody
who comes later waits behind it. So it is given up after GIVEN_UP, and tried again. Each migration
is a transaction of its own: one that was given up has changed nothing, and those before it stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError, OperationalError, connections

from msgnode.core import database_errors

GIVEN_UP = "3s"
"""Shorter than what a commit of a worker waits for."""
_PAUSE = 5.0
_TIMES = 75
"""For ten minutes in all."""
_LOCK = 0x6D736E6D
"""The advisory lock of the one who migrates."""

Say = Callable[[str], Any]


class UnfitDatabase(Exception):
    """The node cannot keep its rows in this database; the text says why."""


@contextmanager
def alone(using: str, say: Say) -> Iterator[None]:
    """Let no other process migrate this database while the block runs.

    Args:
        using: alias of the database.
        say: is told if somebody else migrates it now, and has to be waited for.
    """
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            say("Another process migrates this database; waiting until it has finished.")
            cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, false), "
            "set_config('statement_timeout', '0', false)",
            [GIVEN_UP],
        )
    try:
        yield
    finally:
        with suppress(DatabaseError), connections[using].cursor() as cursor:  # it may be gone
            cursor.execute("RESET lock_timeout; RESET statement_timeout")
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def repeated(migrate: Callable[[], None], say: Say) -> None:
    """Migrate, again and again while a table is in use by a transaction that takes long.

    Raises:
        OperationalError: it is in use for ten minutes, or something else is wrong.
    """
    for left in reversed(range(_TIMES)):
        try:
            migrate()
        except OperationalError as fault:
            if not database_errors.is_locked(fault) or not left:
                raise
        else:
            return
        say("A table is in use by a transaction that takes long, such as a backup; trying again.")
        time.sleep(_PAUSE)


def look_at_encoding(using: str, say: Say) -> None:
    """Look whether the database can keep every text.

    Raises:
        UnfitDatabase: it cannot, and is still empty.
    """
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_encoding")
        encoding = cursor.fetchone()[0]
        if encoding == "UTF8":
            return
        said = (
            f"The encoding of the database is {encoding}, in which not every text can be stored; "
            "the node needs UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )
        if not connection.introspection.table_names(cursor):
            raise UnfitDatabase(said)
    say(said)

"""After a test that commits, the database is what it was when the tests began: a copy is put back.

Django would empty a hundred tables and make every right anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import connection
from django.test import TransactionTestCase


@contextmanager
def put_back_after_commits() -> Iterator[None]:
    """While the block runs; for SQLite, and for this thread's connection."""
    with closing(sqlite3.connect(":memory:")) as kept, pytest.MonkeyPatch.context() as patch:
        connection.ensure_connection()
        connection.connection.backup(kept)

        def put_back(_: TransactionTestCase) -> None:
            connection.ensure_connection()
            kept.backup(connection.connection)

        patch.setattr(TransactionTestCase, "_fixture_teardown", put_back)
        yield

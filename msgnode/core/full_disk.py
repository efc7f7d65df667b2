"""Recognises a database error that means its disk is full. Pure."""

from __future__ import annotations

import sqlite3


def is_full(error: BaseException) -> bool:
    """Whether the error code of SQLite or PostgreSQL behind Django's error says so."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == "53100"

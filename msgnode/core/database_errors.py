"""What an error of the database means to who asked for something, by the code behind it."""

from __future__ import annotations

import sqlite3
from time import monotonic

from .errors import Unavailable
from .faults import FAULTS

PART = "database request"
"""What faults are counted under that are the database's doing."""
RETRY_AFTER = "5"
"""Seconds after which who was refused for the database's sake may ask again."""

NO_CONNECTION_LEFT = "The database has no connection left"
_REFUSED_FOR = 30.0
"""Seconds for which a refused connection counts, if none is made meanwhile."""

DAMAGED = "The database's file is damaged"

_OF_SQLITE = {
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FULL: "The database's disk is full",
    sqlite3.SQLITE_BUSY: "Another process keeps the database locked",
    sqlite3.SQLITE_LOCKED: "Another process keeps the database locked",
}
_OF_POSTGRESQL = {
    "25006": "The database can only be read: it is a standby, or is set so",
    "42501": "The database refuses the node's role a right that it needs",
    "53100": "The database's disk is full",
    "53300": NO_CONNECTION_LEFT,
    "55P03": "Somebody else keeps rows of the database locked",
    "57014": "The database took too long: it is slow, or somebody else keeps rows locked",
    "57P03": "The database is starting or stopping",
    "40P01": "Somebody else changed the same rows at that moment",
    "XX001": DAMAGED,
    "XX002": DAMAGED,
}
_SAID_WITHOUT_ONE = ("too many clients", "remaining connection slots", "too many connections")
_OUT_OF_REACH = "The database is out of reach or does not answer"


def first_line(error: BaseException) -> str:
    """What the database says, without the statement that it repeats below."""
    return (str(error).strip().splitlines() or ["no reason given"])[0]


def is_full(error: BaseException) -> bool:
    """Whether the database's disk is full, by the code behind Django's error."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == "53100"


def is_damaged(error: BaseException) -> bool:
    """Whether what the database has read is not what it wrote."""
    return in_words(error) == DAMAGED


def is_locked(error: BaseException) -> bool:
    """Whether PostgreSQL has given up because somebody else keeps a row locked."""
    return getattr(error.__cause__, "sqlstate", None) == "55P03"


def is_fault(error: BaseException) -> bool:
    """Whether the node's statement is wrong, which SQLite says with the same kind of error."""
    return getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


def is_out_of_reach(error: BaseException) -> bool:
    """Whether the database gave no answer, rather than one that refuses something."""
    cause = error.__cause__
    if getattr(cause, "sqlite_errorcode", None) is not None:
        return False
    return in_words(error) in (_OUT_OF_REACH, _OF_POSTGRESQL["57P03"])


class Connecting:
    """Whether the database lately had no connection left for this process; thread-safe."""

    def __init__(self) -> None:
        self._refused_until = 0.0

    def failed(self, error: BaseException) -> None:
        """Note that a connection could not be made."""
        if _has_no_connection_left(error):
            self._refused_until = monotonic() + _REFUSED_FOR

    def succeeded(self) -> None:
        """Note that a connection was made."""
        self._refused_until = 0.0

    @property
    def problem(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        return NO_CONNECTION_LEFT if monotonic() < self._refused_until else ""


CONNECTING = Connecting()


def in_words(error: BaseException) -> str:
    """What is wrong with the database, in a clause without a full stop."""
    cause = error.__cause__
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        return _OF_SQLITE.get(code & 0xFF, "The database's file cannot be read or written")
    state = getattr(cause, "sqlstate", None)
    if state in _OF_POSTGRESQL:
        return _OF_POSTGRESQL[state]
    if cause is not None and _has_no_connection_left(cause):
        return NO_CONNECTION_LEFT
    return _OUT_OF_REACH


def _has_no_connection_left(error: BaseException) -> bool:
    """Whether PostgreSQL says so; an error of connecting has no code."""
    return any(words in str(error) for words in _SAID_WITHOUT_ONE)


def refusal_for(error: BaseException) -> Unavailable:
    """What is answered because of an error that is the database's doing; counts it."""
    FAULTS.note(PART, error)
    return Unavailable(f"{in_words(error)}; try again later.")

"""What the node does to an SQLite file itself: its space, and commits that SQLite does not read.

That the space of deleted rows can be returned to the disk is set once, before the first table is
created, and not for each connection: it writes to the file, so every connection would have to wait
for the current writer. docs/operations.md says how to convert an older file.

SQLite reads its write-ahead log up to the first frame whose checksum is wrong, and says nothing. So
one bit that a disk has changed takes back whatever was committed after it. A power cut leaves one
such commit at most, which nobody was told of: each waits for the disk.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from django.db import connections

_LOG_HEADER = struct.Struct(">8xI4x8s8x")
"""Size of a page, and salts, of sqlite.org/fileformat2.html, 4.1."""
_FRAME_HEADER = struct.Struct(">4xI8s8x")
"""Pages of the database after a commit, 0 in a frame that ends none, and the log's salts."""


def prepare(using: str, **signal: Any) -> None:
    """Handle `pre_migrate`: have an empty SQLite database use incremental vacuum.

    Args:
        using: alias of the database that is migrated.
        signal: the signal's other arguments; not used.
    """
    connection = connections[using]
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_master")
        if cursor.fetchone()[0]:
            return
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        cursor.execute("VACUUM")


def set_lost_commits_aside(database: Path) -> tuple[int, Path | None] | None:
    """Look for commits in the write-ahead log that SQLite does not read, and keep a copy of it.

    Nothing else may have the database open. Blocks.

    Returns:
        How many there are, and where the copy is, None if the disk did not take it; None if
        there are none.

    Raises:
        sqlite3.DatabaseError: the database cannot be read.
    """
    log = database.with_name(f"{database.name}-wal")
    commits = _commits(log) if log.exists() else []
    if not commits:
        return None
    with closing(sqlite3.connect(database)) as connection:
        _, read, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        lost = sum(frame > read for frame in commits)
        if lost < 2:  # a power cut
            return None
        kept = log.with_name(f"{log.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        try:
            shutil.copy2(log, kept)  # SQLite removes it when the connection is closed
        except OSError:
            kept.unlink(missing_ok=True)
            return lost, None
        return lost, kept


def _commits(log: Path) -> list[int]:
    """The numbers, from 1, of the frames of a write-ahead log that end a commit."""
    found = []
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return []
        page, salts = _LOG_HEADER.unpack(header)
        number = 0
        while len(frame := file.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            number += 1
            pages, its = _FRAME_HEADER.unpack(frame)
            if pages and its == salts:
                found.append(number)
            file.seek(page, 1)
    return found

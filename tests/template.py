"""One migrated database for all nodes of a test run, whichever process of pytest asks first."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.node import Node


def migrated_database(shared: Path) -> Path:
    """A migrated database without rows, made once below a folder that all processes share."""
    made = shared / "template" / "node.sqlite3"
    with (shared / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed
        if not made.exists():
            being_made = shared / "template.new"
            shutil.rmtree(being_made, ignore_errors=True)  # of a process that was stopped
            being_made.mkdir()
            Node(being_made).migrate()
            with closing(sqlite3.connect(being_made / "node.sqlite3")) as connection:
                connection.execute("DELETE FROM msgnode_auditentry")  # of the groups it has made
                connection.commit()
            being_made.rename(made.parent)
    return made

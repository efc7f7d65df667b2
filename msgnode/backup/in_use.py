"""Who writes to the node's database now: the directory's lock, and leases that still run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection
from django.db.models.functions import Now

from msgnode.launch import prepare
from msgnode.launch.error_messages import StartFailed
from msgnode.models import Worker
from msgnode.workers.worker_process import WorkerId, has_ended, this_host


class InUse(Exception):
    """A node runs on this database; the text says which."""


@contextmanager
def held(data_dir: Path) -> Iterator[None]:
    """Keep nodes of this directory from starting while the block runs.

    Raises:
        InUse: one runs.
    """
    try:
        lock = prepare.hold(data_dir, 0)
    except StartFailed as fault:
        raise InUse(str(fault)) from None
    with lock:
        yield


def refuse_workers() -> None:
    """Look for workers that hold a lease, on this machine or another.

    Raises:
        InUse: there is one.
    """
    me = WorkerId("", "", this_host(), os.getpid())
    for row in _leased():
        if not has_ended(me, row.host, row.pid):
            raise InUse(
                f"the worker {row.name} on {row.host.partition('/')[0]} serves this database; "
                "stop the node first."
            )


def _leased() -> list[Any]:
    if Worker._meta.db_table not in connection.introspection.table_names():
        return []
    try:
        return list(Worker.objects.filter(lease_until__gte=Now()))
    except DatabaseError:  # a table of another version
        connection.rollback()
        return []

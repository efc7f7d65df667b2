"""Makes this process one in which only the simulation's time passes. Imported before Django.

What the product imports by name (`from time import monotonic`, `uuid4`) is replaced here, where it
has not been imported yet. So a simulation runs in a process of its own.
"""

from __future__ import annotations

import datetime as datetime_module
import logging
import os
import queue
import random
import secrets
import sqlite3
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .world import Machine, SimpleQueue, Thread, sleep, wall_clock

CHANCE = random.Random(0)
"""What the product draws by chance; seeded for each run."""
_real_pid = os.getpid()


def _clock(*_: Any) -> float:
    return Machine.current.time() if Machine.current is not None else 0.0


class _Datetime(datetime_module.datetime):
    """datetime, whose present is the simulation's."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime_module.datetime.fromtimestamp(wall_clock(), tz)


def _patch_time() -> None:
    time.monotonic = time.perf_counter = time.clock_gettime = _clock  # type: ignore[assignment]
    time.monotonic_ns = time.perf_counter_ns = lambda: int(_clock() * 1e9)  # type: ignore
    time.time = wall_clock
    time.sleep = sleep
    os.getpid = lambda: Machine.current.pid if Machine.current is not None else _real_pid


def _patch_chance() -> None:
    uuid.uuid4 = lambda: uuid.UUID(int=CHANCE.getrandbits(128), version=4)
    os.urandom = CHANCE.randbytes
    secrets.token_bytes = lambda n=32: CHANCE.randbytes(n or 32)  # type: ignore[assignment]
    secrets.token_hex = lambda n=32: CHANCE.randbytes(n or 32).hex()  # type: ignore[assignment]
    secrets.token_urlsafe = secrets.token_hex
    for name in ("random", "uniform", "randrange", "choice", "randint", "sample", "shuffle"):
        setattr(random, name, getattr(CHANCE, name))


def prepare(settings: str = "tests.settings") -> None:
    """Load Django and the product, with the simulation under them."""
    _patch_chance()
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    import django
    from django.conf import settings as node
    from django.utils import timezone

    _patch_time()
    timezone.now = lambda: _Datetime.now(datetime_module.UTC)
    node.DATABASES["default"]["NAME"] = ":memory:"
    node.REDIS_URL = "redis://redis:6379/0"
    node.RECORD = {**node.RECORD, "ON": False}
    node.NODE = {**node.NODE, "WORKER_TIMEOUT": 3.0, "PROBE_INTERVAL": 0.0, "DRAIN_SECONDS": 4.0}
    node.NODE["DRAIN_STAGGER"] = 1.6
    node.NODE["OUTBOX_BYTES"] = 128 * 1024
    django.setup()
    from msgnode.devices import push
    from msgnode.node import base, federation, worker  # noqa: F401
    from msgnode.sandbox import process
    from msgnode.storage import database_threads, group_commit
    from msgnode.workers import inbox, worker_process

    threads = SimpleNamespace(Thread=Thread)
    queues = SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty)
    group_commit.threading = database_threads.threading = threads  # type: ignore
    group_commit.queue = database_threads.queue = queues  # type: ignore
    push.LEAST_SECONDS = 3.0
    process.find_deno = lambda: "deno"  # type: ignore[assignment]
    base.this_host = lambda: Machine.current.host if Machine.current is not None else ""
    runs = worker_process.runs
    from msgnode.redis.channel_layer import StreamChannelLayer

    inbox.channel_layer = lambda: StreamChannelLayer([node.REDIS_URL])
    for name, module in tuple(sys.modules.items()):
        if name.startswith("msgnode.") and vars(module).get("datetime") is datetime_module.datetime:
            module.datetime = _Datetime  # type: ignore[attr-defined]
        if name.startswith("msgnode.") and vars(module).get("runs") is runs:
            module.runs = _runs  # type: ignore[attr-defined]
    _watch_faults()
    _order_sets()


def _runs(pid: int) -> bool:
    assert Machine.current is not None, "asked outside of a machine"
    return any(each.pid == pid for each in Machine.current.world.machines)


def _order_sets() -> None:
    """Have no set's order depend on where its members are in memory."""
    from msgnode.sessions.connection import Connection
    from msgnode.sessions.session import LiveSession
    from msgnode.workers.linked_worker import LinkedWorker
    from msgnode.workers.remote_sessions import RemoteSession

    Connection.__hash__ = lambda self: self.number  # type: ignore
    LinkedWorker.__hash__ = lambda self: hash(self.epoch)  # type: ignore
    LiveSession.__hash__ = lambda self: hash(self.id)  # type: ignore
    RemoteSession.__hash__ = lambda self: hash(self.id)  # type: ignore


def _watch_faults() -> None:
    """What the product contains as a fault of its own is one, unless an engine has failed."""
    from django.db import Error

    from msgnode.core.errors import NodeError
    from msgnode.core.faults import FAULTS, Faults
    from msgnode.redis.faults import RedisFault

    engines = Error, NodeError, RedisFault, OSError, TimeoutError
    FAULTS._clock = _clock
    note = Faults.note

    def noted(faults: Faults, part: str, error: BaseException | None = None) -> None:
        note(faults, part, error)
        if Machine.current is not None and not isinstance(error, engines):
            Machine.current.world.fault(f"a fault was kept to one {part}", error)

    Faults.note = noted  # type: ignore


def make_database(migrated: Path | None = None) -> None:
    """Make the database with a copy of which each run begins.

    Args:
        migrated: a file to copy it from, if there is one.
    """
    from django.core.management import call_command
    from django.db import connection

    from . import broker, database, domains, sandboxes

    connection.ensure_connection()
    broker.install()
    domains.install()
    sandboxes.install()
    if migrated is None:
        call_command("migrate", verbosity=0)
    else:
        with closing(sqlite3.connect(migrated)) as file:
            file.backup(connection.connection)
    database.install()
    logging.disable(logging.CRITICAL)


def log_all() -> None:
    """Print what the workers log."""
    logging.disable(logging.NOTSET)

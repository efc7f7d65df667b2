"""The databases of the simulation: SQLite in memory behind Django, with a server's faults.

The product's statements run as they are. What only PostgreSQL has (the id and the outcome of a
transaction, a lease that is lost when the server is out of reach) is answered here, so that the
code for a server is what runs. Transactions are never interleaved: a call waits before it begins
and after it has committed. So one connection of Django's serves the databases of several nodes, one
after another. Faults: slow, out of reach of a machine, a commit that is refused, a
commit that is done and whose answer is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from django.db import OperationalError, connection, transaction

from msgnode.core import database_limit
from msgnode.storage import fence
from msgnode.workers import lease

from .world import EPOCH, Machine, Thread, World

_LOOK = 0.05
_WRITER = "group-writer"
"""The thread whose transactions are what sessions have asked for, each checked by the fence."""
_OF_DJANGO = "%Y-%m-%d %H:%M:%f"
_NO_LIMIT = 30.0
_EMPTY = sqlite3.connect(":memory:")
"""As each begins."""
_TIMES = sqlite3.connect(":memory:")


class Database:
    """One server, which all workers of a node use."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.raw = connection.get_new_connection(connection.get_connection_params())
        self.raw.isolation_level = None  # transactions are Django's
        self.raw.create_function("strftime", -1, self._strftime)
        _EMPTY.backup(self.raw)
        self.is_up = True
        self.slowness = 0.0
        self.cut: set[int] = set()  # pids that cannot reach it
        self.commits_to_lose: list[str] = []  # of the next: "done" or "refused"
        self.skew = 0.0
        self.outcomes: dict[str, str] = {}
        self.on_written: Callable[[Thread], None] = lambda thread: None
        self.changes = 0  # in the database when the transaction began
        self._number = 0

    def now(self) -> float:
        """Its wall clock."""
        return EPOCH + self.world.now + self.skew

    def use(self) -> None:
        """Have the statements that follow go to this one."""
        connection.connection = self.raw

    def begin(self) -> None:
        """Before a transaction: wait as long as it takes to be heard."""
        thread = Thread.current
        if thread is None:
            self.use()
            return
        limit = self.world.now + (database_limit.seconds() or _NO_LIMIT)
        thread.wait(self.world.random.uniform(0.0002, 0.002) + self.slowness)
        while thread.machine.pid in self.cut:
            if self.world.now > limit:
                raise OperationalError("timeout expired")
            thread.wait(_LOOK)
        if not self.is_up:
            raise OperationalError("connection refused")
        self.use()
        self._number += 1
        self.changes = self.raw.total_changes
        self.outcomes[str(self._number)] = "aborted"

    @property
    def transaction_id(self) -> str:
        return str(self._number)

    def fate(self) -> str:
        """What becomes of the commit that comes now."""
        if Thread.current is None or not self.commits_to_lose:
            return ""
        return self.commits_to_lose.pop(0)

    def answer(self) -> None:
        """After a transaction: wait for the answer."""
        thread = Thread.current
        if thread is None:
            return
        limit = self.world.now + (database_limit.seconds() or _NO_LIMIT)
        thread.wait(self.world.random.uniform(0.0001, 0.001) + self.slowness)
        while thread.machine.pid in self.cut:
            if self.world.now > limit:
                raise OperationalError("timeout expired")
            thread.wait(_LOOK)

    def _strftime(self, form: str, *rest: Any) -> Any:
        if form == _OF_DJANGO and rest == ("NOW",):
            return datetime.fromtimestamp(self.now(), UTC).isoformat(" ", "milliseconds")[:23]
        now = datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        rest = tuple(now if str(each).lower() == "now" else each for each in rest)
        asked = ", ".join("?" * (1 + len(rest)))
        return _TIMES.execute(f"SELECT strftime({asked})", (form, *rest)).fetchone()[0]  # noqa: S608


def _there() -> Database | None:
    """The database of the node whose process runs."""
    machine = Machine.current
    return machine.site.database if machine is not None else None


def install() -> None:
    """Put the simulation behind Django's connection; each database begins as it is now."""
    connection.ensure_connection()
    connection.connection.backup(_EMPTY)
    enter, leave = transaction.Atomic.__enter__, transaction.Atomic.__exit__
    create_cursor = connection.create_cursor

    def cursor(name: str | None = None) -> Any:
        if (database := _there()) is not None:
            database.use()  # a cursor is of one database
        return create_cursor(name)

    def entered(atomic: transaction.Atomic) -> None:
        if not connection.in_atomic_block and (database := _there()) is not None:
            database.begin()
        enter(atomic)

    def left(atomic: transaction.Atomic, kind: Any, error: Any, trace: Any) -> None:
        database = _there()
        if database is None or len(connection.atomic_blocks) != 1 or kind is not None:
            leave(atomic, kind, error, trace)
            return
        id_ = database.transaction_id
        changes, thread = database.raw.total_changes, Thread.current
        if thread is not None and thread.name == _WRITER and changes > database.changes:
            database.on_written(thread)
        fate = database.fate()
        if fate == "refused":
            lost = OperationalError("server closed the connection unexpectedly")
            leave(atomic, type(lost), lost, None)
            raise lost
        leave(atomic, kind, error, trace)
        database.outcomes[id_] = "committed"
        if fate == "done":
            raise OperationalError("server closed the connection unexpectedly")
        database.answer()

    transaction.Atomic.__enter__, transaction.Atomic.__exit__ = entered, left

    def execute(run: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        database = _there()
        if database is None or connection.in_atomic_block or sql.startswith("BEGIN"):
            return run(sql, params, many, context)
        database.begin()
        found = run(sql, params, many, context)
        database.answer()
        return found

    connection.create_cursor = cursor  # type: ignore[method-assign]
    connection.execute_wrappers.append(execute)
    server = SimpleNamespace(vendor="postgresql", ops=connection.ops, cursor=_Cursor)
    fence.connection = lease.connection = server  # type: ignore


class _Cursor:
    """Answers what is asked in PostgreSQL's own words."""

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def execute(self, sql: str, params: list[Any]) -> None:
        database = _there()
        assert database is not None, "asked outside of a machine"
        if "pg_xact_status" in sql:
            database.begin()
            self._row: tuple[str] | None = (database.outcomes.get(params[0], "aborted"),)
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM msgnode_worker WHERE epoch = %s", [params[-1]])
            self._row = (database.transaction_id,) if cursor.fetchone() else None

    def fetchone(self) -> tuple[str] | None:
        return self._row

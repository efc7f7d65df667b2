"""Connections to PostgreSQL that give a wait up when its time is over.

A server that is stopped keeps its sockets open: nothing comes, and no timeout of TCP sees it. So
the client closes a connection on which nothing has come for the limit (core/database_limit.py). The
server is told the same limit for a statement, so that one that waits for a locked row is given up
by the server, and its connection stays good. The client waits a second longer.

A process may be frozen in the middle of a transaction, with rows locked. The server ends such a
transaction after IDLE seconds.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import psycopg
from django.db.backends.postgresql import base

from msgnode.core import database_limit
from msgnode.core.database_errors import CONNECTING

LONGER = 1.0
"""Seconds that a client waits longer than the server."""
IDLE = 60
"""Seconds after which the server ends a transaction in which nothing is asked of it."""
_SET = (
    "SELECT set_config('statement_timeout', %s, false), "
    f"set_config('idle_in_transaction_session_timeout', '{IDLE}s', false)"
)


class NoAnswer(psycopg.OperationalError):
    """Nothing has come from the server for the limit; the connection is closed."""


class LimitedConnection(psycopg.Connection[Any]):
    """A connection whose waits have the limit of the moment."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait for the server.

        Raises:
            NoAnswer: nothing has come from it for the limit.
        """
        limit = database_limit.seconds()
        if limit is not None:
            gen = _limited(gen, limit + LONGER)
        try:
            return super().wait(gen, *args, **kwargs)
        except NoAnswer:
            self.pgconn.finish()
            raise


def _limited(gen: Any, limit: float) -> Generator[Any, Any, Any]:
    """The same exchange, ended when nothing has come for so many seconds.

    Args:
        gen: yields what it waits for, and is sent what is ready: nothing, a few times a second.
        limit: in seconds.
    """
    until = monotonic() + limit
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                until = monotonic() + limit
            elif monotonic() > until:
                gen.close()
                raise NoAnswer(f"The server has not answered for {limit:g} s.")
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, with the limit of the moment at each new connection."""

    Database: Any = SimpleNamespace(
        **{
            **vars(psycopg),
            "connect": LimitedConnection.connect,
            # Django tells by these classes which of its own errors one is. A server that can only
            # be read, as after a fail-over, counts as one that is out of reach.
            "OperationalError": (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction),
        }
    )

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect within the limit, and tell the server how long a statement may take."""
        try:
            connection = self._connected(conn_params)
        except psycopg.OperationalError as error:
            CONNECTING.failed(error)
            raise
        CONNECTING.succeeded()
        return connection

    def _connected(self, conn_params: dict[str, Any]) -> Any:
        limit = database_limit.seconds()
        if limit is None:
            return super().get_new_connection(conn_params)
        most = max(2, math.ceil(limit))  # less is none to libpq
        named = int(conn_params.get("connect_timeout") or most)
        connection = super().get_new_connection(
            {**conn_params, "connect_timeout": min(named, most)}
        )
        was = connection.autocommit
        connection.autocommit = True  # one exchange, not three
        connection.execute(_SET, [str(math.ceil(limit * 1000))])
        connection.autocommit = was
        return connection
